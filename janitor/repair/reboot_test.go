package repair_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/janitor/repair"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var policy = repair.Policy{Timeout: 25 * time.Minute, ResendAfter: 10 * time.Minute, Poll: 15 * time.Second}

func machine(boot string) record.NodeIdentity {
	return record.NodeIdentity{UID: "node-1", ProviderID: "cloud://1", SystemUUID: "sys-1", BootID: boot}
}

// begun is an object of session s1 whose intent is written, on a quarantined
// node of that session that nobody claims.
func begun(change ...func(*repair.View)) repair.View {
	v := repair.View{
		Object: repair.Object{
			UID: "me", Session: "s1", Finalizer: true, Started: start, Key: "me", PreBoot: "boot-1", Machine: machine("boot-1"),
		},
		Node: repair.Node{Exists: true, Identity: machine("boot-1"), Ready: true, Session: "s1"},
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

// lifted is a Node whose cordon somebody lifted, which is no release.
func lifted(v *repair.View) { v.Node.Schedulable, v.Node.Missing = true, true }

func claimedBy(uid string) func(*repair.View) { return func(v *repair.View) { v.Node.Claim = uid } }

func sent(v *repair.View) {
	v.Object.SignalAt, v.Object.LastAt, v.Object.Signals, v.Node.Claim = start, start, 1, "me"
}

func resent(v *repair.View) { v.Object.LastAt, v.Object.Signals = start.Add(10*time.Minute), 2 }

func excluded(v *repair.View) { v.Node.Excluded = true }

func unknown(v *repair.View) { v.Node.Unknown = true }

func throttled(d time.Duration) func(*repair.View) {
	return func(v *repair.View) { v.Object.NotBefore = start.Add(d) }
}

func answered(v *repair.View) { v.Object.Acknowledged = true }

func rebooted(v *repair.View) { v.Node.Identity.BootID = "boot-2" }

func notReady(v *repair.View) { v.Node.Ready = false }

func absent(v *repair.View) { v.Node = repair.Node{} }

func manual(v *repair.View) {
	v.Object.SignalAt, v.Object.LastAt, v.Object.Signals = time.Time{}, time.Time{}, 0
}

func abandoned(v *repair.View) { v.Object.Abandoned = true }

func person(v *repair.View) { v.Object.Session, v.Node.Session, v.Node.Schedulable = "", "", true }

func reports(p repair.Plugin) func(*repair.View) { return func(v *repair.View) { v.Plugin = p } }

func TestTimeToLive(t *testing.T) {
	over := func(change func(*repair.Object)) repair.View {
		return begun(func(v *repair.View) {
			v.Object.Completed, v.Object.CompletedAt, v.Object.Finalizer = true, start, false
			change(&v.Object)
		})
	}
	live := policy
	live.TTL = 90 * time.Minute
	for _, tt := range []struct {
		name   string
		change func(*repair.Object)
		policy repair.Policy
		after  time.Duration
		want   repair.Verdict
	}{
		{"fresh", func(*repair.Object) {}, live, 0, repair.Verdict{Step: repair.Wait, Reason: repair.Ended, Again: time.Hour}},
		{"soon", func(*repair.Object) {}, live, 80 * time.Minute, repair.Verdict{Step: repair.Wait, Reason: repair.Ended, Again: 10 * time.Minute}},
		{"over", func(*repair.Object) {}, live, 90 * time.Minute, repair.Verdict{Step: repair.Expire, Reason: repair.Ended}},
		{"claimed", func(o *repair.Object) { o.Finalizer = true }, live, 90 * time.Minute, repair.Verdict{Step: repair.Unclaim, Reason: repair.Ended}},
		{"of a NodeHealthCheck", func(o *repair.Object) { o.RemovedByOther = true }, live, 90 * time.Minute, repair.Verdict{Step: repair.Done, Reason: repair.Ended}},
		{"being deleted", func(o *repair.Object) { o.Deleting = true }, live, 90 * time.Minute, repair.Verdict{Step: repair.Done, Reason: repair.Ended}},
		{"kept for ever", func(*repair.Object) {}, policy, 9000 * time.Hour, repair.Verdict{Step: repair.Done, Reason: repair.Ended}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, repair.Reboot(over(tt.change), tt.policy, start.Add(tt.after))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReboot(t *testing.T) {
	verdict := func(s repair.Step, r repair.Reason) repair.Verdict { return repair.Verdict{Step: s, Reason: r} }
	wait := func(r repair.Reason, again time.Duration) repair.Verdict {
		return repair.Verdict{Step: repair.Wait, Reason: r, Again: again}
	}
	poll := policy.Poll
	tests := []struct {
		name   string
		view   repair.View
		after  time.Duration
		manual bool
		want   repair.Verdict
	}{
		{"new object", repair.View{Object: repair.Object{UID: "me"}, Node: begun().Node}, 0, false, verdict(repair.Begin, repair.NotStarted)},
		{"new object, node absent", repair.View{Object: repair.Object{UID: "me"}}, 0, false, verdict(repair.Begin, repair.NotStarted)},
		{"the finalizer was taken", begun(func(v *repair.View) { v.Object.Finalizer = false }), 0, false, verdict(repair.Begin, repair.NotStarted)},
		{"started while the node was absent", begun(func(v *repair.View) { v.Object.Key = "" }), 0, false, verdict(repair.Begin, repair.NoIntent)},
		{"the node has not reported its boot", begun(func(v *repair.View) { v.Object.Key, v.Node.Identity.BootID = "", "" }), 0, false, wait(repair.BootUnknown, poll)},

		{"intent written", begun(), 0, false, verdict(repair.Claim, repair.NotClaimed)},
		{"claimed", begun(claimedBy("me")), 0, false, verdict(repair.Send, repair.Claimed)},
		{"claimed by another", begun(claimedBy("other")), 0, false, wait(repair.Busy, poll)},
		{"claimed by another for too long", begun(claimedBy("other")), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},

		{"session gone", begun(func(v *repair.View) { v.Node.Session = "" }), 0, false, verdict(repair.SessionOver, repair.NoSession)},
		{"another session", begun(func(v *repair.View) { v.Node.Session = "s2" }), 0, false, verdict(repair.SessionOver, repair.OtherSession)},
		{"schedulable, and its marks come back", begun(lifted), 0, false, wait(repair.MarksLifted, poll)},
		{"its marks are lifted, no second signal", begun(sent, lifted), 10 * time.Minute, false, wait(repair.MarksLifted, poll)},
		{"a person's object needs no marks", begun(person, claimedBy("me"), lifted), 0, false, verdict(repair.Send, repair.Claimed)},
		{"schedulable, and its marks do not come back", begun(lifted), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},
		{"schedulable", begun(func(v *repair.View) { v.Node.Schedulable = true }), 0, false, verdict(repair.SessionOver, repair.NodeSchedulable)},
		{"session gone after the claim", begun(claimedBy("me"), func(v *repair.View) { v.Node.Session = "" }), 0, false, verdict(repair.SessionOver, repair.NoSession)},
		{"session gone while another claims", begun(claimedBy("other"), func(v *repair.View) { v.Node.Session = "" }), 0, false, wait(repair.Busy, poll)},
		{"a person's object", begun(person), 0, false, verdict(repair.Claim, repair.NotClaimed)},
		{"a person's object, claimed by another", begun(person, claimedBy("other")), 0, false, wait(repair.Busy, poll)},
		{"a person's object on a node of a session", begun(func(v *repair.View) { v.Object.Session = "" }), 0, false, verdict(repair.Claim, repair.NotClaimed)},

		{"session unknown", begun(unknown), 0, false, wait(repair.SessionUnknown, poll)},
		{"session unknown after the claim", begun(claimedBy("me"), unknown), 0, false, wait(repair.SessionUnknown, poll)},
		{"session unknown for too long", begun(claimedBy("me"), unknown), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},
		{"session unknown, nobody is asked to do it by hand", begun(claimedBy("me"), manual, unknown), 0, true, wait(repair.SessionUnknown, poll)},
		{"session unknown, a person's object", begun(person, unknown), 0, false, wait(repair.SessionUnknown, poll)},
		{"session unknown, and over", begun(unknown, func(v *repair.View) { v.Node.Session = "" }), 0, false, verdict(repair.SessionOver, repair.NoSession)},
		{"session unknown, no second signal", begun(sent, unknown), 10 * time.Minute, false, wait(repair.SessionUnknown, poll)},
		{"session unknown, the signal took effect", begun(sent, unknown, rebooted, reports(repair.ReportsReady)), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},

		{"sent, no answer", begun(sent), time.Minute, false, wait(repair.Unanswered, poll)},
		{"sent, no answer, soon due", begun(sent), 10*time.Minute - time.Second, false, wait(repair.Unanswered, time.Second)},
		{"sent, no answer, due", begun(sent), 10 * time.Minute, false, verdict(repair.Resend, repair.Unanswered)},
		{"sent twice, no answer", begun(sent, resent), 19 * time.Minute, false, wait(repair.Unanswered, poll)},
		{"sent twice, due again", begun(sent, resent), 20 * time.Minute, false, verdict(repair.Resend, repair.Unanswered)},
		{"due, but the claim was taken from the node", begun(sent, claimedBy("")), 10 * time.Minute, false, verdict(repair.Claim, repair.NotClaimed)},
		{"due, but another claims", begun(sent, claimedBy("other")), 10 * time.Minute, false, wait(repair.Busy, poll)},
		{"due, but the quarantine session has ended", begun(sent, func(v *repair.View) { v.Node.Session = "" }), 10 * time.Minute, false, wait(repair.NoSession, poll)},
		{"answered, never again", begun(sent, answered), 20 * time.Minute, false, wait(repair.BootUnchanged, poll)},
		{"answered, time nearly up", begun(sent, answered), 25*time.Minute - time.Second, false, wait(repair.BootUnchanged, time.Second)},
		{"answered, time up", begun(sent, answered), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},
		{"a late signal has the whole time", begun(sent, answered, func(v *repair.View) { v.Object.SignalAt = start.Add(24 * time.Minute) }), 48 * time.Minute, false, wait(repair.BootUnchanged, poll)},
		{"no answer, time up", begun(sent), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},

		{"the clock was reset a little", begun(sent, answered), -20 * time.Minute, false, wait(repair.BootUnchanged, poll)},
		{"the clock was reset by years", begun(sent, answered), -20000 * time.Hour, false, verdict(repair.Fail, repair.TimeUp)},
		{"the clock was reset by years, never sent", begun(absent), -20000 * time.Hour, false, verdict(repair.Fail, repair.NodeGone)},
		{"the clock was reset by years, rebooted", begun(sent, answered, rebooted, reports(repair.ReportsReady)), -20000 * time.Hour, false, verdict(repair.Succeed, repair.BootChanged)},
		{"the clock ran ahead, rebooted", begun(sent, answered, rebooted, reports(repair.ReportsReady)), 20000 * time.Hour, false, verdict(repair.Succeed, repair.BootChanged)},
		{"the clock was reset, no response yet", begun(sent), -20 * time.Minute, false, wait(repair.Unanswered, poll)},

		{"new boot, not ready", begun(sent, answered, rebooted, notReady), time.Minute, false, wait(repair.NotReady, poll)},
		{"new boot, never ready", begun(sent, answered, rebooted, notReady), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},
		{"new boot, ready", begun(sent, answered, rebooted), time.Minute, false, verdict(repair.QueryPlugin, repair.BootChanged)},
		{"new boot, plugin says no", begun(sent, answered, rebooted, reports(repair.ReportsNotReady)), time.Minute, false, wait(repair.PluginNotReady, poll)},
		{"new boot, plugin says yes", begun(sent, answered, rebooted, reports(repair.ReportsReady)), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"new boot after a crash, no answer", begun(sent, rebooted, reports(repair.ReportsReady)), 11 * time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"new boot seen after the time", begun(sent, answered, rebooted, reports(repair.ReportsReady)), time.Hour, false, verdict(repair.Succeed, repair.BootChanged)},
		{"new boot, plugin has no opinion", begun(sent, answered, rebooted, reports(repair.ReportsNothing)), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"new boot, plugin knows no such machine", begun(sent, answered, rebooted, reports(repair.ReportsDeleted)), time.Minute, false, wait(repair.PluginNotReady, poll)},
		{"rebooted by somebody else", begun(rebooted, reports(repair.ReportsReady)), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"session over, but rebooted", begun(sent, rebooted, reports(repair.ReportsReady), func(v *repair.View) { v.Node.Session = "" }), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"a plugin that lies", begun(sent, answered, reports(repair.ReportsReady)), time.Minute, false, wait(repair.BootUnchanged, poll)},
		{"the boot id is not reported", begun(sent, answered, func(v *repair.View) { v.Node.Identity.BootID = "" }, reports(repair.ReportsReady)), time.Minute, false, wait(repair.BootUnchanged, poll)},

		{"the boot id is not reported before the signal", begun(claimedBy("me"), func(v *repair.View) { v.Node.Identity.BootID = "" }), 0, false, wait(repair.BootUnknown, poll)},

		{"absent before the signal", begun(absent), time.Minute, false, wait(repair.NodeAbsent, poll)},
		{"absent after the signal", begun(sent, absent), time.Minute, false, wait(repair.NodeAbsent, poll)},
		{"absent for too long", begun(sent, absent), 25 * time.Minute, false, verdict(repair.Fail, repair.NodeGone)},
		{"the same machine under another uid", begun(claimedBy("me"), func(v *repair.View) { v.Node.Identity.UID = "node-2" }), 0, false, verdict(repair.Send, repair.Claimed)},
		{"another machine before the signal", begun(func(v *repair.View) { v.Node.Identity.ProviderID = "cloud://2" }), 0, false, verdict(repair.Fail, repair.AnotherMachine)},
		{"another machine under another boot", begun(sent, rebooted, reports(repair.ReportsReady), func(v *repair.View) { v.Node.Identity.ProviderID = "cloud://2" }), 0, false, verdict(repair.Fail, repair.AnotherMachine)},
		{"a machine without any identity", begun(func(v *repair.View) { v.Object.Machine = record.NodeIdentity{} }), 0, false, wait(repair.MachineUnknown, poll)},

		{"for no node", begun(absent, func(v *repair.View) { v.Object.Unnamed = true }), 0, false, verdict(repair.Fail, repair.NodeUnnamed)},
		{"given up before the signal", begun(claimedBy("me"), abandoned), 0, false, verdict(repair.Fail, repair.GivenUp)},
		{"given up after the signal", begun(sent, answered, abandoned), 0, false, verdict(repair.Fail, repair.GivenUp)},
		{"the second signal came late", begun(sent, func(v *repair.View) { v.Object.LastAt, v.Object.Signals = start.Add(19*time.Minute), 2 }), 20 * time.Minute, false, wait(repair.Unanswered, poll)},

		{"manual mode claims too", begun(manual), 0, true, verdict(repair.Claim, repair.NotClaimed)},
		{"excluded", begun(excluded), 0, false, verdict(repair.Fail, repair.NodeExcluded)},
		{"excluded after the claim", begun(excluded, claimedBy("me")), 0, false, verdict(repair.Fail, repair.NodeExcluded)},
		{"excluded in manual mode", begun(excluded, claimedBy("me")), 0, true, verdict(repair.Fail, repair.NodeExcluded)},
		{"excluded after the signal", begun(sent, excluded), 10 * time.Minute, false, wait(repair.NodeExcluded, poll)},
		{"excluded, but back", begun(sent, answered, excluded, rebooted, reports(repair.ReportsReady)), time.Minute, false, verdict(repair.Succeed, repair.BootChanged)},
		{"asked to be left alone", begun(claimedBy("me"), throttled(7*time.Second)), 0, false, wait(repair.Throttled, 7*time.Second)},
		{"asked to be left alone for long", begun(claimedBy("me"), throttled(time.Hour)), 0, false, wait(repair.Throttled, poll)},
		{"left alone long enough", begun(claimedBy("me"), throttled(time.Minute)), time.Minute, false, verdict(repair.Send, repair.Claimed)},
		{"left alone until the time is up", begun(claimedBy("me"), throttled(time.Hour)), 25 * time.Minute, false, verdict(repair.Fail, repair.TimeUp)},
		{"left alone before a second one", begun(sent, throttled(11*time.Minute)), 10 * time.Minute, false, wait(repair.Throttled, poll)},
		{"the plugin named a time for the same key", begun(sent, throttled(10*time.Second)), 9 * time.Second, false, wait(repair.Unanswered, time.Second)},
		{"and that time has come", begun(sent, throttled(10*time.Second)), 10 * time.Second, false, verdict(repair.Resend, repair.Unanswered)},
		{"the session ends before that time", begun(sent, throttled(10*time.Second), func(v *repair.View) { v.Node.Session = "" }), 10 * time.Second, false, wait(repair.NoSession, poll)},
		{"a signal that was accepted has no such time", begun(sent, answered, throttled(10*time.Second)), time.Minute, false, wait(repair.BootUnchanged, poll)},
		{"session over while left alone", begun(claimedBy("me"), throttled(time.Minute), func(v *repair.View) { v.Node.Session = "" }), 0, false, verdict(repair.SessionOver, repair.NoSession)},
		{"manual mode waits", begun(manual, claimedBy("me")), 0, true, wait(repair.Manual, poll)},
		{"manual mode has time", begun(manual, claimedBy("me")), 48 * time.Hour, true, wait(repair.Manual, poll)},
		{"manual mode, somebody sent it", begun(sent, answered), time.Minute, true, wait(repair.BootUnchanged, poll)},

		{"completed", begun(func(v *repair.View) { v.Object.Completed = true }), 0, false, verdict(repair.Unclaim, repair.Ended)},
		{"completed and released", begun(func(v *repair.View) { v.Object.Completed, v.Object.Finalizer = true, false }), 0, false, verdict(repair.Done, repair.Ended)},
		{"deleted in mid-flight", begun(sent, func(v *repair.View) { v.Object.Deleting = true }), 0, false, verdict(repair.Unclaim, repair.Deleted)},
		{"deleted before it began", repair.View{Object: repair.Object{UID: "me", Deleting: true}}, 0, false, verdict(repair.Done, repair.Deleted)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := policy
			p.Manual = tt.manual
			if diff := cmp.Diff(tt.want, repair.Reboot(tt.view, p, start.Add(tt.after))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the facts are, a signal needs the intent, the claim, the unchanged
// boot of the same machine and, for an object of a session, that session.
func TestSignalNeedsItsProofs(t *testing.T) {
	signals := 0
	for _, v := range everyView() {
		for _, after := range []time.Duration{0, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 25 * time.Minute, time.Hour} {
			got := repair.Reboot(v, policy, start.Add(after))
			if got.Step == repair.Succeed && (v.Node.Identity.BootID == "boot-1" || !v.Node.Ready || v.Plugin != repair.ReportsReady) {
				t.Fatalf("success without a proof: %+v", v)
			}
			if got.Step != repair.Send && got.Step != repair.Resend {
				continue
			}
			signals++
			o, n := v.Object, v.Node
			switch {
			case o.Key == "" || o.Completed || o.Deleting || o.Acknowledged:
				t.Fatalf("%s after %s of an object that asks for none: %+v", got.Step, after, o)
			case n.Claim != o.UID || n.Identity.BootID != o.PreBoot || n.Identity.ProviderID != o.Machine.ProviderID:
				t.Fatalf("%s after %s to a node that is not ours: %+v", got.Step, after, v)
			case o.Session != "" && (n.Session != o.Session || n.Schedulable):
				t.Fatalf("%s after %s though the quarantine session has ended: %+v", got.Step, after, v)
			case got.Step == repair.Send && o.Signals > 0, got.Step == repair.Resend && after < 10*time.Minute:
				t.Fatalf("%s after %s: %+v", got.Step, after, o)
			}
		}
	}
	if signals == 0 {
		t.Fatal("no view leads to a signal")
	}
}

func everyView() []repair.View {
	views := []repair.View{begun()}
	for _, options := range [][]func(*repair.View){
		{nil, person, func(v *repair.View) { v.Node.Session = "" }, func(v *repair.View) { v.Node.Session = "s2" }, func(v *repair.View) { v.Node.Schedulable = true }, lifted},
		{nil, sent, func(v *repair.View) { sent(v); answered(v) }},
		{nil, claimedBy("me"), claimedBy("other"), claimedBy("")},
		{nil, rebooted, func(v *repair.View) { v.Node.Identity.BootID = "" }, func(v *repair.View) { v.Node.Identity.ProviderID = "cloud://2" }},
		{nil, notReady},
		{nil, reports(repair.ReportsReady), reports(repair.ReportsNotReady)},
		{nil, func(v *repair.View) { v.Object.Completed = true }, func(v *repair.View) { v.Object.Deleting = true }, func(v *repair.View) { v.Object.Key = "" }},
	} {
		var next []repair.View
		for _, v := range views {
			for _, change := range options {
				w := v
				if change != nil {
					change(&w)
				}
				next = append(next, w)
			}
		}
		views = next
	}
	return views
}
