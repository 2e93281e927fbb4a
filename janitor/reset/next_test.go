package reset_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var policy = reset.Policy{
	Policy:          repair.Policy{Timeout: 25 * time.Minute, Poll: 15 * time.Second, TTL: time.Hour},
	TeardownTimeout: 5 * time.Minute, RestoreTimeout: 10 * time.Minute, JobTimeout: 5 * time.Minute,
}

func machine(boot string) record.NodeIdentity {
	return record.NodeIdentity{UID: "node-1", ProviderID: "cloud://1", SystemUUID: "sys-1", BootID: boot}
}

type change = func(*reset.View)

// begun is an object of session s1 whose machine is noted, on a quarantined node of
// that session that it has claimed and that runs one service.
func begun(changes ...change) reset.View {
	v := reset.View{
		Object: reset.Object{UID: "me", Session: "s1", Finalizer: true, Started: start, Machine: machine("b1")},
		Node: reset.Node{
			Node:     repair.Node{Exists: true, Identity: machine("b1"), Ready: true, Session: "s1", Claim: "me"},
			Services: []reset.Service{{Label: "l", Value: "true", Present: true, Pods: 1, Ready: 1}},
		},
	}
	for _, c := range changes {
		c(&v)
	}
	return v
}

func noted(v *reset.View) {
	v.Object.TeardownAt = start
	v.Object.Noted = []reset.Service{{Label: "l", Value: "true", Present: true, Running: true}}
}

func down(v *reset.View) {
	noted(v)
	v.Node.Down = "me"
	v.Node.Services[0].Value = reset.Off
}

func free(v *reset.View) { v.Node.Services[0].Pods, v.Node.Services[0].Ready = 0, 0 }

func jobNoted(v *reset.View) {
	down(v)
	free(v)
	v.Object.JobAt = start
}

func job(is reset.Job, uid string) change {
	return func(v *reset.View) {
		jobNoted(v)
		v.Job, v.Object.JobUID = is, uid
	}
}

func concluded(good bool) change {
	return func(v *reset.View) {
		jobNoted(v)
		v.Object.Concluded, v.Object.Good, v.Object.RestoreAt = true, good, start
	}
}

func restored(v *reset.View) { v.Node.Down, v.Node.Services[0].Value = "", "true" }

func up(v *reset.View) { v.Node.Services[0].Pods, v.Node.Services[0].Ready = 1, 1 }

func claim(uid string) change { return func(v *reset.View) { v.Node.Claim = uid } }

func boot(id string) change { return func(v *reset.View) { v.Node.Identity.BootID = id } }

func absent(v *reset.View) { v.Node = reset.Node{} }

func released(v *reset.View) { v.Node.Session = "" }

func deleting(v *reset.View) { v.Object.Deleting = true }

func TestNext(t *testing.T) {
	do := func(s repair.Step, why repair.Reason) repair.Verdict { return repair.Verdict{Step: s, Reason: why} }
	wait := func(why repair.Reason, again time.Duration) repair.Verdict {
		return repair.Verdict{Step: repair.Wait, Reason: why, Again: again}
	}
	end := func(why repair.Reason) repair.Verdict { return do(reset.Conclude, why) }
	poll := policy.Poll
	for _, tt := range []struct {
		name  string
		view  reset.View
		after time.Duration
		want  repair.Verdict
	}{
		{"new", reset.View{Object: reset.Object{UID: "me"}, Node: begun().Node}, 0, do(repair.Begin, repair.NotStarted)},
		{"the finalizer was taken", begun(func(v *reset.View) { v.Object.Finalizer = false }), 0, do(repair.Begin, repair.NotStarted)},
		{"no node", begun(absent), 0, end(repair.NodeAbsent)},
		{"no intent", begun(func(v *reset.View) { v.Object.Machine.BootID = "" }), 0, do(repair.Begin, repair.NoIntent)},
		{"no boot reported", begun(boot(""), func(v *reset.View) { v.Object.Machine.BootID = "" }), 0, wait(repair.BootUnknown, poll)},
		{"no boot reported any more", begun(boot("")), 0, wait(repair.BootUnknown, poll)},
		{"another machine", begun(func(v *reset.View) {
			v.Node.Identity = record.NodeIdentity{UID: "2", ProviderID: "cloud://2", SystemUUID: "sys-2", BootID: "b9"}
		}), 0, end(repair.AnotherMachine)},
		{"another machine, no boot reported yet", begun(func(v *reset.View) {
			v.Node.Identity = record.NodeIdentity{UID: "2", ProviderID: "cloud://2", SystemUUID: "sys-2"}
		}), 0, end(repair.AnotherMachine)},
		{"a machine that does not say", begun(func(v *reset.View) { v.Node.Identity = record.NodeIdentity{BootID: "b1"} }), 0, wait(repair.MachineUnknown, poll)},
		{"rebooted", begun(boot("b2")), 0, end(repair.BootChanged)},
		{"rebooted behind another repair", begun(boot("b2"), claim("x")), 0, end(repair.BootChanged)},
		{"rebooting", begun(boot("b2"), func(v *reset.View) { v.Node.Ready = false }), 0, wait(repair.NotReady, poll)},
		{"rebooting for too long", begun(boot("b2"), func(v *reset.View) { v.Node.Ready = false }), 25 * time.Minute, end(repair.TimeUp)},

		{"not claimed", begun(claim("")), 0, do(repair.Claim, repair.NotClaimed)},
		{"busy", begun(claim("x")), 0, wait(repair.Busy, poll)},
		{"busy for a last moment", begun(claim("x")), 25*time.Minute - time.Second, wait(repair.Busy, time.Second)},
		{"busy for too long", begun(claim("x")), 25 * time.Minute, end(repair.TimeUp)},
		{"session over", begun(released), 0, end(repair.NoSession)},
		{"excluded", begun(func(v *reset.View) { v.Node.Excluded = true }), 0, end(repair.NodeExcluded)},
		{"marks lifted", begun(func(v *reset.View) { v.Node.Schedulable, v.Node.Missing = true, true }), 0, wait(repair.MarksLifted, poll)},
		{"session unknown", begun(func(v *reset.View) { v.Node.Unknown = true }), 0, wait(repair.SessionUnknown, poll)},
		{"a person's needs no session", begun(released, func(v *reset.View) { v.Object.Session = "" }), 0, do(reset.Note, reset.NotTornDown)},
		{"left down by another", begun(func(v *reset.View) { v.Node.Down = "x" }), 0, wait(reset.LeftDown, poll)},
		{"claimed", begun(), 0, do(reset.Note, reset.NotTornDown)},
		{"claimed too late", begun(), 25 * time.Minute, end(repair.TimeUp)},
		{"begun by a clock of the future", begun(), -time.Hour, end(repair.TimeUp)},

		{"noted", begun(noted), 0, do(reset.TearDown, reset.NotTornDown)},
		{"noted, changed since", begun(noted, func(v *reset.View) { v.Node.Services[0].Value = reset.Off }), 0, do(reset.Note, reset.ServicesChanged)},
		{"noted, absent since", begun(noted, func(v *reset.View) { v.Node.Services[0].Present = false }), 0, do(reset.Note, reset.ServicesChanged)},
		{"noted half of its time ago", begun(noted), 150 * time.Second, do(reset.TearDown, reset.NotTornDown)},
		{"noted long ago", begun(noted), 3 * time.Minute, do(reset.Note, reset.ServicesChanged)},
		{"noted, the claim was taken", begun(noted, claim("x")), 0, end(repair.Busy)},
		{"noted, the claim was dropped", begun(noted, claim("")), 0, do(repair.Claim, repair.NotClaimed)},
		{"noted, session over", begun(noted, released), 0, end(repair.NoSession)},
		{"noted, session unknown", begun(noted, func(v *reset.View) { v.Node.Unknown = true }), time.Hour, end(repair.TimeUp)},
		{"noted, another's mark", begun(noted, func(v *reset.View) { v.Node.Down = "x" }), 0, wait(reset.LeftDown, poll)},
		{"down", begun(down), 0, wait(reset.PodsLeft, poll)},
		{"down for a last moment", begun(down), 5*time.Minute - time.Second, wait(reset.PodsLeft, time.Second)},
		{"down for too long", begun(down), 5 * time.Minute, end(reset.TeardownTimeUp)},
		{"down, marks lifted", begun(down, func(v *reset.View) { v.Node.Schedulable, v.Node.Missing = true, true }), 0, wait(repair.MarksLifted, poll)},
		{"down, session unknown", begun(down, func(v *reset.View) { v.Node.Unknown = true }), 0, wait(repair.SessionUnknown, poll)},
		{"down, session over", begun(down, released), 0, end(repair.NoSession)},
		{"down, the node is away", begun(down, absent), 0, wait(repair.NodeAbsent, poll)},
		{"down, the node is away for too long", begun(down, absent), 25 * time.Minute, end(repair.NodeAbsent)},
		{"down, rebooted", begun(down, boot("b2")), 0, end(repair.BootChanged)},
		{"free", begun(down, free), 0, do(reset.NoteJob, reset.NodeFree)},

		{"job noted", begun(jobNoted), 0, do(reset.CreateJob, reset.JobNotCreated)},
		{"job noted, the claim was dropped", begun(jobNoted, claim("")), 0, do(repair.Claim, repair.NotClaimed)},
		{"job noted, session over", begun(jobNoted, released), 0, wait(reset.JobNotCreated, poll)},
		{"job noted, session long over", begun(jobNoted, released), time.Minute, end(repair.NoSession)},
		{"job noted, session unknown", begun(jobNoted, func(v *reset.View) { v.Node.Unknown = true }), 0, wait(repair.SessionUnknown, poll)},
		{"job noted too long ago", begun(jobNoted), 2 * time.Minute, end(reset.JobLost)},
		{"job noted, rebooted", begun(jobNoted, boot("b2")), 0, wait(reset.JobRuns, poll)},
		{"job noted, rebooted, never seen", begun(jobNoted, boot("b2")), time.Minute, end(repair.BootChanged)},
		{"job there", begun(job(reset.JobRunning, "")), 0, do(reset.SeeJob, reset.JobCreated)},
		{"job runs", begun(job(reset.JobRunning, "j")), 0, wait(reset.JobRuns, poll)},
		{"job runs, session over", begun(job(reset.JobRunning, "j"), released), 0, wait(reset.JobRuns, poll)},
		{"job runs, rebooted", begun(job(reset.JobRunning, "j"), boot("b2")), 0, wait(reset.JobRuns, poll)},
		{"job runs for a last moment", begun(job(reset.JobRunning, "j")), 8*time.Minute - time.Second, wait(reset.JobRuns, time.Second)},
		{"job runs for too long", begun(job(reset.JobRunning, "j")), 8 * time.Minute, end(reset.JobTimeUp)},
		{"job is gone", begun(job(reset.JobAbsent, "j")), 0, end(reset.JobLost)},
		{"job is gone, rebooted", begun(job(reset.JobAbsent, "j"), boot("b2")), 0, end(repair.BootChanged)},
		{"job is another's", begun(job(reset.JobForeign, "")), 0, end(reset.NameTaken)},
		{"job succeeded", begun(job(reset.JobSucceeded, "j")), 0, end(reset.JobEnded)},
		{"job succeeded before it was seen", begun(job(reset.JobSucceeded, "")), 0, end(reset.JobEnded)},
		{"job failed", begun(job(reset.JobFailed, "j")), 0, end(reset.JobFailure)},

		{"concluded", begun(concluded(true)), 0, do(reset.Restore, reset.StillDown)},
		{"concluded badly", begun(concluded(false)), 0, do(reset.Restore, reset.StillDown)},
		{"concluded, another's mark", begun(concluded(false), func(v *reset.View) { v.Node.Down = "x" }), 0, do(reset.Complete, reset.Restored)},
		{"concluded, no node", begun(concluded(true), absent), 0, do(reset.Complete, reset.Restored)},
		{"restored, pods missing", begun(concluded(true), restored), 0, wait(reset.PodsMissing, poll)},
		{"restored, pods missing for too long", begun(concluded(true), restored), 10 * time.Minute, do(reset.Complete, reset.RestoreTimeUp)},
		{"restored, up", begun(concluded(true), restored, up), time.Hour, do(reset.Complete, reset.Restored)},
		{"restored after a failure", begun(concluded(false), restored), 0, do(reset.Complete, reset.Restored)},
		{"restored, off by another hand", begun(concluded(true), restored, func(v *reset.View) { v.Node.Services[0].Value = reset.Off }), 0, do(reset.Complete, reset.Restored)},
		{"restored, off before", begun(concluded(true), restored, func(v *reset.View) {
			v.Object.Noted[0].Value, v.Node.Services[0].Value = reset.Off, reset.Off
		}), 0, do(reset.Complete, reset.Restored)},
		{"restored, did not run before", begun(concluded(true), restored, func(v *reset.View) { v.Object.Noted[0].Running = false }), 0, do(reset.Complete, reset.Restored)},

		{"deleted", begun(deleting), 0, do(repair.Unclaim, repair.Deleted)},
		{"deleted, noted", begun(noted, deleting), 0, do(repair.Unclaim, repair.Deleted)},
		{"deleted, down", begun(down, deleting), 0, do(reset.Restore, repair.Deleted)},
		{"deleted, job runs", begun(job(reset.JobRunning, "j"), deleting), 0, wait(reset.JobRuns, poll)},
		{"deleted, job runs for too long", begun(job(reset.JobRunning, "j"), deleting), 8 * time.Minute, do(reset.Restore, repair.Deleted)},
		{"deleted, job may land", begun(jobNoted, deleting), 0, wait(reset.JobRuns, poll)},
		{"deleted, job over", begun(job(reset.JobFailed, "j"), deleting), 0, do(reset.Restore, repair.Deleted)},
		{"deleted, given back", begun(concluded(true), restored, deleting), 0, do(repair.Unclaim, repair.Deleted)},
		{"deleted, let go", begun(deleting, func(v *reset.View) { v.Object.Finalizer = false }), 0, do(repair.Done, repair.Deleted)},
		{"over", begun(func(v *reset.View) { v.Object.Completed, v.Object.CompletedAt = true, start }), 0, do(repair.Unclaim, repair.Ended)},
		{"over, let go", begun(func(v *reset.View) {
			v.Object.Completed, v.Object.CompletedAt, v.Object.Finalizer = true, start, false
		}), time.Hour, do(repair.Expire, repair.Ended)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, reset.Next(tt.view, policy, start.Add(tt.after))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// In manual mode nothing is touched, however long it takes.
func TestManual(t *testing.T) {
	manual := policy
	manual.Manual = true
	for name, tt := range map[string]struct {
		view reset.View
		want repair.Verdict
	}{
		"waits":       {begun(), repair.Verdict{Step: repair.Wait, Reason: repair.Manual, Again: policy.Poll}},
		"not claimed": {begun(claim("")), repair.Verdict{Step: repair.Claim, Reason: repair.NotClaimed}},
		"done": {begun(func(v *reset.View) { v.Object.ResetManually = true }),
			repair.Verdict{Step: reset.Conclude, Reason: reset.ResetManually}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, reset.Next(tt.view, manual, start.Add(48*time.Hour))); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
