package reboot_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/janitor/reboot"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var policy = reboot.Policy{Timeout: 25 * time.Minute, ResendAfter: 10 * time.Minute, Poll: 15 * time.Second}

func machine(boot string) record.NodeIdentity {
	return record.NodeIdentity{UID: "node-1", ProviderID: "cloud://1", SystemUUID: "sys-1", BootID: boot}
}

// begun is an object of session s1 whose intent is written, on a quarantined
// node of that session that nobody claims.
func begun(change ...func(*reboot.View)) reboot.View {
	v := reboot.View{
		Object: reboot.Object{
			UID: "me", Session: "s1", Finalizer: true, Started: start, Key: "me", PreBoot: "boot-1", Machine: machine("boot-1"),
		},
		Node: reboot.Node{Exists: true, Identity: machine("boot-1"), Ready: true, Session: "s1"},
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

func claimedBy(uid string) func(*reboot.View) { return func(v *reboot.View) { v.Node.Claim = uid } }

func sent(v *reboot.View) { v.Object.SignalAt, v.Object.Signals, v.Node.Claim = start, 1, "me" }

func excluded(v *reboot.View) { v.Node.Excluded = true }

func throttled(d time.Duration) func(*reboot.View) {
	return func(v *reboot.View) { v.Object.NotBefore = start.Add(d) }
}

func answered(v *reboot.View) { v.Object.Acknowledged = true }

func rebooted(v *reboot.View) { v.Node.Identity.BootID = "boot-2" }

func notReady(v *reboot.View) { v.Node.Ready = false }

func absent(v *reboot.View) { v.Node = reboot.Node{} }

func manual(v *reboot.View) { v.Object.SignalAt, v.Object.Signals = time.Time{}, 0 }

func person(v *reboot.View) { v.Object.Session, v.Node.Session, v.Node.Schedulable = "", "", true }

func says(p reboot.Plugin) func(*reboot.View) { return func(v *reboot.View) { v.Plugin = p } }

func TestTimeToLive(t *testing.T) {
	over := func(change func(*reboot.Object)) reboot.View {
		return begun(func(v *reboot.View) {
			v.Object.Completed, v.Object.CompletedAt, v.Object.Finalizer = true, start, false
			change(&v.Object)
		})
	}
	live := policy
	live.TTL = 90 * time.Minute
	for _, tt := range []struct {
		name   string
		change func(*reboot.Object)
		policy reboot.Policy
		after  time.Duration
		want   reboot.Verdict
	}{
		{"fresh", func(*reboot.Object) {}, live, 0, reboot.Verdict{Step: reboot.Wait, Reason: reboot.Ended, Again: time.Hour}},
		{"soon", func(*reboot.Object) {}, live, 80 * time.Minute, reboot.Verdict{Step: reboot.Wait, Reason: reboot.Ended, Again: 10 * time.Minute}},
		{"over", func(*reboot.Object) {}, live, 90 * time.Minute, reboot.Verdict{Step: reboot.Expire, Reason: reboot.Ended}},
		{"claimed", func(o *reboot.Object) { o.Finalizer = true }, live, 90 * time.Minute, reboot.Verdict{Step: reboot.Unclaim, Reason: reboot.Ended}},
		{"of a NodeHealthCheck", func(o *reboot.Object) { o.Kept = true }, live, 90 * time.Minute, reboot.Verdict{Step: reboot.Done, Reason: reboot.Ended}},
		{"being deleted", func(o *reboot.Object) { o.Deleting = true }, live, 90 * time.Minute, reboot.Verdict{Step: reboot.Done, Reason: reboot.Ended}},
		{"kept for ever", func(*reboot.Object) {}, policy, 9000 * time.Hour, reboot.Verdict{Step: reboot.Done, Reason: reboot.Ended}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, reboot.Decide(over(tt.change), tt.policy, start.Add(tt.after))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	verdict := func(s reboot.Step, r reboot.Reason) reboot.Verdict { return reboot.Verdict{Step: s, Reason: r} }
	wait := func(r reboot.Reason, again time.Duration) reboot.Verdict {
		return reboot.Verdict{Step: reboot.Wait, Reason: r, Again: again}
	}
	poll := policy.Poll
	tests := []struct {
		name   string
		view   reboot.View
		after  time.Duration
		manual bool
		want   reboot.Verdict
	}{
		{"new object", reboot.View{Object: reboot.Object{UID: "me"}, Node: begun().Node}, 0, false, verdict(reboot.Begin, reboot.NotStarted)},
		{"new object, node absent", reboot.View{Object: reboot.Object{UID: "me"}}, 0, false, verdict(reboot.Begin, reboot.NotStarted)},
		{"the finalizer was taken", begun(func(v *reboot.View) { v.Object.Finalizer = false }), 0, false, verdict(reboot.Begin, reboot.NotStarted)},
		{"started while the node was absent", begun(func(v *reboot.View) { v.Object.Key = "" }), 0, false, verdict(reboot.Begin, reboot.NoIntent)},
		{"the node has not reported its boot", begun(func(v *reboot.View) { v.Object.Key, v.Node.Identity.BootID = "", "" }), 0, false, wait(reboot.BootUnknown, poll)},

		{"intent written", begun(), 0, false, verdict(reboot.Claim, reboot.NotClaimed)},
		{"claimed", begun(claimedBy("me")), 0, false, verdict(reboot.Send, reboot.Claimed)},
		{"claimed by another", begun(claimedBy("other")), 0, false, wait(reboot.Busy, poll)},
		{"claimed by another for too long", begun(claimedBy("other")), 25 * time.Minute, false, verdict(reboot.Fail, reboot.TimeUp)},

		{"session gone", begun(func(v *reboot.View) { v.Node.Session = "" }), 0, false, verdict(reboot.SessionOver, reboot.NoSession)},
		{"another session", begun(func(v *reboot.View) { v.Node.Session = "s2" }), 0, false, verdict(reboot.SessionOver, reboot.OtherSession)},
		{"schedulable", begun(func(v *reboot.View) { v.Node.Schedulable = true }), 0, false, verdict(reboot.SessionOver, reboot.NodeSchedulable)},
		{"session gone after the claim", begun(claimedBy("me"), func(v *reboot.View) { v.Node.Session = "" }), 0, false, verdict(reboot.SessionOver, reboot.NoSession)},
		{"session gone while another claims", begun(claimedBy("other"), func(v *reboot.View) { v.Node.Session = "" }), 0, false, wait(reboot.Busy, poll)},
		{"a person's object", begun(person), 0, false, verdict(reboot.Claim, reboot.NotClaimed)},
		{"a person's object, claimed by another", begun(person, claimedBy("other")), 0, false, wait(reboot.Busy, poll)},
		{"a person's object on a node of a session", begun(func(v *reboot.View) { v.Object.Session = "" }), 0, false, verdict(reboot.Claim, reboot.NotClaimed)},

		{"sent, no answer", begun(sent), time.Minute, false, wait(reboot.Unanswered, poll)},
		{"sent, no answer, soon due", begun(sent), 10*time.Minute - time.Second, false, wait(reboot.Unanswered, time.Second)},
		{"sent, no answer, due", begun(sent), 10 * time.Minute, false, verdict(reboot.Resend, reboot.Unanswered)},
		{"sent twice, no answer", begun(sent, func(v *reboot.View) { v.Object.Signals = 2 }), 19 * time.Minute, false, wait(reboot.Unanswered, poll)},
		{"sent twice, due again", begun(sent, func(v *reboot.View) { v.Object.Signals = 2 }), 20 * time.Minute, false, verdict(reboot.Resend, reboot.Unanswered)},
		{"due, but the claim was taken from the node", begun(sent, claimedBy("")), 10 * time.Minute, false, verdict(reboot.Claim, reboot.NotClaimed)},
		{"due, but another claims", begun(sent, claimedBy("other")), 10 * time.Minute, false, wait(reboot.Busy, poll)},
		{"due, but the session is over", begun(sent, func(v *reboot.View) { v.Node.Session = "" }), 10 * time.Minute, false, wait(reboot.NoSession, poll)},
		{"answered, never again", begun(sent, answered), 20 * time.Minute, false, wait(reboot.BootUnchanged, poll)},
		{"answered, time nearly up", begun(sent, answered), 25*time.Minute - time.Second, false, wait(reboot.BootUnchanged, time.Second)},
		{"answered, time up", begun(sent, answered), 25 * time.Minute, false, verdict(reboot.Fail, reboot.TimeUp)},
		{"a late signal has the whole time", begun(sent, answered, func(v *reboot.View) { v.Object.SignalAt = start.Add(24 * time.Minute) }), 48 * time.Minute, false, wait(reboot.BootUnchanged, poll)},
		{"no answer, time up", begun(sent), 25 * time.Minute, false, verdict(reboot.Fail, reboot.TimeUp)},

		{"the clock was set back a little", begun(sent, answered), -20 * time.Minute, false, wait(reboot.BootUnchanged, poll)},
		{"the clock was set back by years", begun(sent, answered), -20000 * time.Hour, false, verdict(reboot.Fail, reboot.TimeUp)},
		{"the clock was set back by years, never sent", begun(absent), -20000 * time.Hour, false, verdict(reboot.Fail, reboot.NodeGone)},
		{"the clock was set back by years, rebooted", begun(sent, answered, rebooted, says(reboot.SaysReady)), -20000 * time.Hour, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"the clock ran ahead, rebooted", begun(sent, answered, rebooted, says(reboot.SaysReady)), 20000 * time.Hour, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"the clock was set back, no answer yet", begun(sent), -20 * time.Minute, false, wait(reboot.Unanswered, poll)},

		{"new boot, not ready", begun(sent, answered, rebooted, notReady), time.Minute, false, wait(reboot.NotReady, poll)},
		{"new boot, never ready", begun(sent, answered, rebooted, notReady), 25 * time.Minute, false, verdict(reboot.Fail, reboot.TimeUp)},
		{"new boot, ready", begun(sent, answered, rebooted), time.Minute, false, verdict(reboot.AskPlugin, reboot.BootChanged)},
		{"new boot, plugin says no", begun(sent, answered, rebooted, says(reboot.SaysNotReady)), time.Minute, false, wait(reboot.PluginNotReady, poll)},
		{"new boot, plugin says yes", begun(sent, answered, rebooted, says(reboot.SaysReady)), time.Minute, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"new boot after a crash, no answer", begun(sent, rebooted, says(reboot.SaysReady)), 11 * time.Minute, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"new boot seen after the time", begun(sent, answered, rebooted, says(reboot.SaysReady)), time.Hour, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"rebooted by somebody else", begun(rebooted, says(reboot.SaysReady)), time.Minute, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"session over, but rebooted", begun(sent, rebooted, says(reboot.SaysReady), func(v *reboot.View) { v.Node.Session = "" }), time.Minute, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"a plugin that lies", begun(sent, answered, says(reboot.SaysReady)), time.Minute, false, wait(reboot.BootUnchanged, poll)},
		{"the boot id is not reported", begun(sent, answered, func(v *reboot.View) { v.Node.Identity.BootID = "" }, says(reboot.SaysReady)), time.Minute, false, wait(reboot.BootUnchanged, poll)},

		{"the boot id is not reported before the signal", begun(claimedBy("me"), func(v *reboot.View) { v.Node.Identity.BootID = "" }), 0, false, wait(reboot.BootUnknown, poll)},

		{"absent before the signal", begun(absent), time.Minute, false, wait(reboot.NodeAbsent, poll)},
		{"absent after the signal", begun(sent, absent), time.Minute, false, wait(reboot.NodeAbsent, poll)},
		{"absent for too long", begun(sent, absent), 25 * time.Minute, false, verdict(reboot.Fail, reboot.NodeGone)},
		{"the same machine under another uid", begun(claimedBy("me"), func(v *reboot.View) { v.Node.Identity.UID = "node-2" }), 0, false, verdict(reboot.Send, reboot.Claimed)},
		{"another machine before the signal", begun(func(v *reboot.View) { v.Node.Identity.ProviderID = "cloud://2" }), 0, false, verdict(reboot.Fail, reboot.AnotherMachine)},
		{"another machine under another boot", begun(sent, rebooted, says(reboot.SaysReady), func(v *reboot.View) { v.Node.Identity.ProviderID = "cloud://2" }), 0, false, verdict(reboot.Fail, reboot.AnotherMachine)},
		{"a machine without any identity", begun(func(v *reboot.View) { v.Object.Machine = record.NodeIdentity{} }), 0, false, wait(reboot.MachineUnknown, poll)},

		{"manual mode claims too", begun(manual), 0, true, verdict(reboot.Claim, reboot.NotClaimed)},
		{"excluded", begun(excluded), 0, false, verdict(reboot.Fail, reboot.NodeExcluded)},
		{"excluded after the claim", begun(excluded, claimedBy("me")), 0, false, verdict(reboot.Fail, reboot.NodeExcluded)},
		{"excluded in manual mode", begun(excluded, claimedBy("me")), 0, true, verdict(reboot.Fail, reboot.NodeExcluded)},
		{"excluded after the signal", begun(sent, excluded), 10 * time.Minute, false, wait(reboot.NodeExcluded, poll)},
		{"excluded, but back", begun(sent, answered, excluded, rebooted, says(reboot.SaysReady)), time.Minute, false, verdict(reboot.Succeed, reboot.BootChanged)},
		{"asked to be left alone", begun(claimedBy("me"), throttled(7*time.Second)), 0, false, wait(reboot.Throttled, 7*time.Second)},
		{"asked to be left alone for long", begun(claimedBy("me"), throttled(time.Hour)), 0, false, wait(reboot.Throttled, poll)},
		{"left alone long enough", begun(claimedBy("me"), throttled(time.Minute)), time.Minute, false, verdict(reboot.Send, reboot.Claimed)},
		{"left alone until the time is up", begun(claimedBy("me"), throttled(time.Hour)), 25 * time.Minute, false, verdict(reboot.Fail, reboot.TimeUp)},
		{"left alone before a second one", begun(sent, throttled(11*time.Minute)), 10 * time.Minute, false, wait(reboot.Throttled, poll)},
		{"session over while left alone", begun(claimedBy("me"), throttled(time.Minute), func(v *reboot.View) { v.Node.Session = "" }), 0, false, verdict(reboot.SessionOver, reboot.NoSession)},
		{"manual mode waits", begun(manual, claimedBy("me")), 0, true, wait(reboot.Manual, poll)},
		{"manual mode has time", begun(manual, claimedBy("me")), 48 * time.Hour, true, wait(reboot.Manual, poll)},
		{"manual mode, somebody sent it", begun(sent, answered), time.Minute, true, wait(reboot.BootUnchanged, poll)},

		{"completed", begun(func(v *reboot.View) { v.Object.Completed = true }), 0, false, verdict(reboot.Unclaim, reboot.Ended)},
		{"completed and released", begun(func(v *reboot.View) { v.Object.Completed, v.Object.Finalizer = true, false }), 0, false, verdict(reboot.Done, reboot.Ended)},
		{"deleted in mid-flight", begun(sent, func(v *reboot.View) { v.Object.Deleting = true }), 0, false, verdict(reboot.Unclaim, reboot.Deleted)},
		{"deleted before it began", reboot.View{Object: reboot.Object{UID: "me", Deleting: true}}, 0, false, verdict(reboot.Done, reboot.Deleted)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := policy
			p.Manual = tt.manual
			if diff := cmp.Diff(tt.want, reboot.Decide(tt.view, p, start.Add(tt.after))); diff != "" {
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
			got := reboot.Decide(v, policy, start.Add(after))
			if got.Step == reboot.Succeed && (v.Node.Identity.BootID == "boot-1" || !v.Node.Ready || v.Plugin != reboot.SaysReady) {
				t.Fatalf("success without a proof: %+v", v)
			}
			if got.Step != reboot.Send && got.Step != reboot.Resend {
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
				t.Fatalf("%s after %s though the session is over: %+v", got.Step, after, v)
			case got.Step == reboot.Send && o.Signals > 0, got.Step == reboot.Resend && after < 10*time.Minute:
				t.Fatalf("%s after %s: %+v", got.Step, after, o)
			}
		}
	}
	if signals == 0 {
		t.Fatal("no view leads to a signal")
	}
}

func everyView() []reboot.View {
	views := []reboot.View{begun()}
	for _, options := range [][]func(*reboot.View){
		{nil, person, func(v *reboot.View) { v.Node.Session = "" }, func(v *reboot.View) { v.Node.Session = "s2" }, func(v *reboot.View) { v.Node.Schedulable = true }},
		{nil, sent, func(v *reboot.View) { sent(v); answered(v) }},
		{nil, claimedBy("me"), claimedBy("other"), claimedBy("")},
		{nil, rebooted, func(v *reboot.View) { v.Node.Identity.BootID = "" }, func(v *reboot.View) { v.Node.Identity.ProviderID = "cloud://2" }},
		{nil, notReady},
		{nil, says(reboot.SaysReady), says(reboot.SaysNotReady)},
		{nil, func(v *reboot.View) { v.Object.Completed = true }, func(v *reboot.View) { v.Object.Deleting = true }, func(v *reboot.View) { v.Object.Key = "" }},
	} {
		var next []reboot.View
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
