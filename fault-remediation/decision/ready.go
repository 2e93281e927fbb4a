package decision

import (
	"fmt"
	"time"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/fault-remediation/action"
	"github.com/nvidia/nvsentinel/internal/kubelet"
)

// watchedFor bounds the time in which it is found out whether the kubelet of a Node that
// reports Ready is alive, after the machine's own time is over.
const watchedFor = 20 * time.Minute

// waitReady waits for a machine that may have been asked to boot by an attempt. A Lease is
// not watched: the kubelet is looked at again soon.
func (d decision) waitReady(a record.Attempt) Step {
	n, until := d.v.Node, d.now.Add(d.bootLeft(a))
	const unsent = ", no second signal is sent while the machine may be booting"
	object := a.Kind + " " + a.Name
	switch {
	case !n.Ready:
		return d.waitUntil(WaitReady, until, "the Node has not been Ready since "+object+unsent)
	case d.watching():
		s := d.waitUntil(WaitReady, latest(until, n.Kubelet.Until),
			"the Node still reports Ready with the boot ID from before "+object+", its kubelet is being checked"+unsent)
		s.After = kubelet.PollInterval
		return s
	}
	s := d.waitUntil(WaitReady, until,
		"the Node still reports Ready with the boot ID from before "+object+", but its kubelet does not respond"+unsent)
	s.After = min(s.After, soon)
	return s
}

// watching reports whether the Node is Ready and it is not known yet whether its kubelet is
// alive.
func (d decision) watching() bool {
	return d.v.Node.Ready && d.v.Node.Kubelet.State == kubelet.Unknown
}

// neverReady reports whether a machine that was asked to boot has had its time, and it is
// known, or was tried for long enough to find out, that its kubelet is silent.
func (d decision) neverReady(next job, a record.Attempt) bool {
	if d.bootLeft(a) > 0 {
		return false
	}
	return !d.watching() || d.elapsed(d.waitedSince(next.record, WaitReady, watchedFor), watchedFor) >= watchedFor
}

// lostSince returns what an operator is shown about a machine that is never Ready.
func (d decision) lostSince(a record.Attempt) string {
	text := fmt.Sprintf("%s %s may have reached the machine, and ", a.Kind, a.Name)
	if d.v.Node.Ready {
		return text + "its kubelet has not responded since, although the Node still reports Ready"
	}
	return text + fmt.Sprintf("the Node has not been Ready in the %s since", d.bootLimit(a))
}

// bootLeft is how much longer a machine that was asked to boot is waited for.
func (d decision) bootLeft(a record.Attempt) time.Duration {
	limit := d.bootLimit(a)
	return limit - d.elapsed(a.SubmittedAt, limit)
}

// bootLimit is how long after its object was created a machine may take to be
// Ready: as long as the object itself may be without a verdict.
func (d decision) bootLimit(a record.Attempt) time.Duration {
	if known, ok := d.repairs.Of(a.Action); ok && known.UnknownTimeout > 0 && known.Chain == "" {
		return known.UnknownTimeout
	}
	return action.DefaultUnknownTimeout
}
