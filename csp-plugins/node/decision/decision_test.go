package decision

import (
	"testing"
	"time"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNext(t *testing.T) {
	policy := Policy{Grace: 10 * time.Second, Poll: time.Second}
	job := func(state JobState) Job {
		return Job{State: state, Node: "a", BootID: "boot-0", StartBy: start.Add(2 * time.Minute)}
	}
	other := job(JobActive)
	other.Node = "b"
	before, after := Node{Exists: true, BootID: "boot-0"}, Node{Exists: true, BootID: "boot-1"}
	absent := Job{State: JobAbsent}
	for name, tt := range map[string]struct {
		job  Job
		pod  PodState
		node Node
		at   time.Duration
		want Verdict
	}{
		"a new key":                             {absent, PodAbsent, before, 0, Verdict{Step: Create, Reason: NotRequested}},
		"no Node":                               {absent, PodAbsent, Node{}, 0, Verdict{Step: Refuse, Reason: NodeNotFound}},
		"no boot id":                            {absent, PodAbsent, Node{Exists: true}, 0, Verdict{Step: Retry, Reason: BootIDUnknown}},
		"a Job of another client":               {Job{State: JobForeign}, PodAbsent, before, 0, Verdict{Step: Refuse, Reason: NameTaken}},
		"a key of another node":                 {other, PodStarted, before, 0, Verdict{Step: Refuse, Reason: KeyOfAnotherNode}},
		"no Pod yet":                            {job(JobActive), PodAbsent, before, 0, Verdict{Step: Wait, Reason: NotStarted, Again: time.Second}},
		"a Pod that waits":                      {job(JobActive), PodWaiting, before, time.Minute, Verdict{Step: Wait, Reason: NotStarted, Again: time.Second}},
		"within the grace":                      {job(JobActive), PodWaiting, before, 129500 * time.Millisecond, Verdict{Step: Wait, Reason: NotStarted, Again: 500 * time.Millisecond}},
		"at the end of the grace":               {job(JobActive), PodWaiting, before, 130 * time.Second, Verdict{Step: Delete, Reason: StartTimeUp}},
		"no Pod at the end of the grace":        {job(JobActive), PodAbsent, before, time.Hour, Verdict{Step: Delete, Reason: PodNotCreated}},
		"a Pod that the kubelet refused":        {job(JobEnded), PodRejected, before, 0, Verdict{Step: Report, Reason: Rejected}},
		"such a Pod before its Job has ended":   {job(JobActive), PodRejected, before, 0, Verdict{Step: Report, Reason: Rejected}},
		"the Node is gone, its Pod waits":       {job(JobActive), PodWaiting, Node{}, time.Hour, Verdict{Step: Delete, Reason: StartTimeUp}},
		"a Pod that runs":                       {job(JobActive), PodStarted, before, 0, Verdict{Step: Accept, Reason: Started}},
		"a Pod that started in time, later":     {job(JobActive), PodStarted, before, time.Hour, Verdict{Step: Accept, Reason: Started}},
		"a Pod that the shutdown killed":        {job(JobEnded), PodStarted, before, 0, Verdict{Step: Accept, Reason: Started}},
		"a program that requested it":           {job(JobEnded), PodRequested, before, 0, Verdict{Step: Accept, Reason: Requested}},
		"a program that found another boot":     {job(JobEnded), PodOtherBoot, before, 0, Verdict{Step: Accept, Reason: Rebooted}},
		"a program that started late":           {job(JobEnded), PodLate, before, 0, Verdict{Step: Refuse, Reason: StartedLate}},
		"a program that failed":                 {job(JobEnded), PodFailed, before, 0, Verdict{Step: Refuse, Reason: ProgramFailed}},
		"another boot":                          {job(JobEnded), PodStarted, after, 0, Verdict{Step: Accept, Reason: Rebooted}},
		"another boot before the Pod started":   {job(JobActive), PodWaiting, after, time.Hour, Verdict{Step: Accept, Reason: Rebooted}},
		"another boot outweighs a failure":      {job(JobEnded), PodFailed, after, 0, Verdict{Step: Accept, Reason: Rebooted}},
		"a boot id that is not reported":        {job(JobActive), PodWaiting, Node{Exists: true}, 0, Verdict{Step: Wait, Reason: NotStarted, Again: time.Second}},
		"a Job that is being deleted":           {job(JobDeleting), PodWaiting, before, time.Hour, Verdict{Step: Wait, Reason: JobRemoved, Again: time.Second}},
		"a Job that ended, and its Pod is gone": {job(JobEnded), PodAbsent, before, time.Hour, Verdict{Step: Accept, Reason: JobOver}},
	} {
		got := Next(View{Node: "a", Job: tt.job, Pod: Pod{State: tt.pod}, Live: tt.node}, policy, start.Add(tt.at))
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
