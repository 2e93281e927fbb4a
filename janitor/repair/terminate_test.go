package repair_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/janitor/repair"
)

func replaced(v *repair.View) { v.Node.Identity.ProviderID = "cloud://2" }

func TestTermination(t *testing.T) {
	verdict := func(s repair.Step, r repair.Reason) repair.Verdict { return repair.Verdict{Step: s, Reason: r} }
	wait := func(r repair.Reason, again time.Duration) repair.Verdict {
		return repair.Verdict{Step: repair.Wait, Reason: r, Again: again}
	}
	poll := policy.Poll
	there, gone, mute := reports(repair.ReportsReady), reports(repair.ReportsDeleted), reports(repair.ReportsNothing)
	tests := []struct {
		name  string
		view  repair.View
		after time.Duration
		want  repair.Verdict
	}{
		{"new object", repair.View{Object: repair.Object{UID: "me"}, Node: begun().Node}, 0, verdict(repair.Begin, repair.NotStarted)},
		{"no intent", begun(func(v *repair.View) { v.Object.Key = "" }), 0, verdict(repair.Begin, repair.NoIntent)},
		{"a node that never booted is terminated too", begun(func(v *repair.View) { v.Object.PreBoot, v.Node.Identity.BootID = "", "" }), 0, verdict(repair.Claim, repair.NotClaimed)},
		{"claimed", begun(claimedBy("me")), 0, verdict(repair.Send, repair.Claimed)},
		{"claimed, rebooted since it was seen", begun(claimedBy("me"), rebooted), 0, verdict(repair.Send, repair.Claimed)},
		{"claimed by a reboot", begun(claimedBy("other")), 0, wait(repair.Busy, poll)},
		{"absent before the signal", begun(absent), 0, wait(repair.NodeAbsent, poll)},
		{"absent before the signal, though the provider says gone", begun(absent, gone), 25 * time.Minute, verdict(repair.Fail, repair.NodeGone)},
		{"another machine before the signal", begun(replaced), 0, verdict(repair.Fail, repair.AnotherMachine)},
		{"session over", begun(func(v *repair.View) { v.Node.Session = "" }), 0, verdict(repair.SessionOver, repair.NoSession)},
		{"session unknown", begun(claimedBy("me"), unknown), 0, wait(repair.SessionUnknown, poll)},
		{"session unknown, due, no second signal", begun(sent, there, unknown), 10 * time.Minute, wait(repair.SessionUnknown, poll)},
		{"session unknown, gone since it was told", begun(sent, answered, gone, unknown), 0, verdict(repair.DeleteNode, repair.MachineGone)},
		{"excluded", begun(claimedBy("me"), excluded), 0, verdict(repair.Fail, repair.NodeExcluded)},
		{"time up before the signal", begun(claimedBy("me")), 25 * time.Minute, verdict(repair.Fail, repair.TimeUp)},

		{"sent, not asked", begun(sent), 0, verdict(repair.QueryPlugin, repair.Signaled)},
		{"answered, not asked", begun(sent, answered), 0, verdict(repair.QueryPlugin, repair.Signaled)},
		{"answered, still there", begun(sent, answered, there), 0, wait(repair.MachineThere, poll)},
		{"answered, no answer about it", begun(sent, answered, reports(repair.ReportsNotReady)), 0, wait(repair.MachineThere, poll)},
		{"answered, gone", begun(sent, answered, gone), 0, verdict(repair.DeleteNode, repair.MachineGone)},
		{"unanswered, gone", begun(sent, gone), 0, verdict(repair.DeleteNode, repair.MachineGone)},
		{"gone, the quarantine session has ended", begun(sent, answered, gone, func(v *repair.View) { v.Node.Session = "" }), 0, verdict(repair.DeleteNode, repair.MachineGone)},
		{"gone when the time is up", begun(sent, answered, gone), time.Hour, verdict(repair.DeleteNode, repair.MachineGone)},
		{"gone, and the node too", begun(sent, answered, gone, absent), 0, verdict(repair.Succeed, repair.MachineGone)},
		{"unanswered, gone, and the node too", begun(sent, gone, absent), 0, verdict(repair.Succeed, repair.MachineGone)},
		{"no opinion, and the node no longer exists", begun(sent, answered, mute, absent), 0, verdict(repair.Succeed, repair.MachineGone)},
		{"no opinion, and the node is there", begun(sent, answered, mute), 0, wait(repair.MachineThere, poll)},
		{"the node no longer exists, the machine is not", begun(sent, answered, there, absent), 0, wait(repair.MachineThere, poll)},
		{"the node no longer exists, the machine never", begun(sent, answered, there, absent), 25 * time.Minute, verdict(repair.Fail, repair.TimeUp)},
		{"never gone", begun(sent, answered, there), 25 * time.Minute, verdict(repair.Fail, repair.TimeUp)},
		{"another machine has the node name", begun(sent, answered, replaced), 0, verdict(repair.Succeed, repair.Replaced)},
		{"another machine has the node name, no answer", begun(sent, replaced), 0, verdict(repair.Fail, repair.AnotherMachine)},

		{"unanswered, still there", begun(sent, there), time.Minute, wait(repair.Unanswered, poll)},
		{"unanswered, due", begun(sent, there), 10 * time.Minute, verdict(repair.Resend, repair.Unanswered)},
		{"unanswered, due, the provider does not answer", begun(sent, reports(repair.ReportsNotReady)), 10 * time.Minute, verdict(repair.Resend, repair.Unanswered)},
		{"unanswered, due, but rebooted", begun(sent, there, rebooted), 10 * time.Minute, wait(repair.BootChanged, poll)},
		{"unanswered, due, but the boot id is not reported", begun(sent, there, func(v *repair.View) { v.Node.Identity.BootID = "" }), 10 * time.Minute, wait(repair.BootChanged, poll)},
		{"unanswered, due, but the quarantine session has ended", begun(sent, there, func(v *repair.View) { v.Node.Session = "" }), 10 * time.Minute, wait(repair.NoSession, poll)},
		{"unanswered, due, but absent", begun(sent, there, absent), 10 * time.Minute, wait(repair.MachineThere, poll)},

		{"given up", begun(sent, answered, gone, abandoned), 0, verdict(repair.Fail, repair.GivenUp)},
		{"completed", begun(func(v *repair.View) { v.Object.Completed = true }), 0, verdict(repair.Unclaim, repair.Ended)},
		{"deleted in mid-flight", begun(sent, func(v *repair.View) { v.Object.Deleting = true }), 0, verdict(repair.Unclaim, repair.Deleted)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, repair.Termination(tt.view, policy, start.Add(tt.after))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the facts are, a Node is removed only when the termination of the machine
// was requested, the provider reports that the machine is gone, and the Node is that
// machine's. A signal needs what it needs for a reboot.
func TestTerminationNeedsItsProofs(t *testing.T) {
	var signals, deletions int
	for _, v := range everyView() {
		for _, plugin := range []repair.Plugin{v.Plugin, repair.ReportsDeleted, repair.ReportsNothing} {
			v.Plugin = plugin
			for _, after := range []time.Duration{0, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 25 * time.Minute, time.Hour} {
				got := repair.Termination(v, policy, start.Add(after))
				switch got.Step { //nolint:exhaustive // the others touch no machine
				case repair.DeleteNode:
					deletions++
					deletionProven(t, v)
				case repair.Send, repair.Resend:
					signals++
					terminationProven(t, v, got.Step, after)
				}
			}
		}
	}
	if signals == 0 || deletions == 0 {
		t.Fatalf("%d views lead to a signal, %d to a deletion", signals, deletions)
	}
}

func deletionProven(t *testing.T, v repair.View) {
	t.Helper()
	o, n := v.Object, v.Node
	if o.SignalAt.IsZero() || v.Plugin != repair.ReportsDeleted || n.Identity.ProviderID != o.Machine.ProviderID || o.Completed || o.Deleting {
		t.Fatalf("the Node is removed without a proof: %+v", v)
	}
}

func terminationProven(t *testing.T, v repair.View, step repair.Step, after time.Duration) {
	t.Helper()
	o, n := v.Object, v.Node
	switch {
	case o.Key == "" || o.Acknowledged || n.Claim != o.UID || n.Identity.ProviderID != o.Machine.ProviderID:
		t.Fatalf("%s after %s: %+v", step, after, v)
	case o.Session != "" && (n.Session != o.Session || n.Schedulable):
		t.Fatalf("%s after %s though the quarantine session has ended: %+v", step, after, v)
	case step == repair.Resend && (after < 10*time.Minute || n.Identity.BootID != o.PreBoot || v.Plugin == repair.ReportsDeleted):
		t.Fatalf("%s after %s: %+v", step, after, v)
	}
}
