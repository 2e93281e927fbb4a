package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leases are the Lease objects of the services that elect a leader.
var leases = map[string]string{
	"fault-quarantine": "fault-quarantine-events", "node-drainer": "node-drainer-drains",
	"fault-remediation": "fault-remediation-repairs", "janitor": "janitor-repairs",
}

// Elects reports whether a service runs in several replicas of which one acts.
func (f *Fleet) Elects(room string) bool { return f.options.Replicas > 1 && leases[room] != "" }

// Leading is since when the present leader of a service leads; zero while none does.
func (f *Fleet) Leading(ctx context.Context, room string) (time.Time, error) {
	lease, err := f.Cluster.Client().CoordinationV1().Leases("nvsentinel").Get(ctx, leases[room], metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.AcquireTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.AcquireTime.Time, nil
}

// Replicas are the processes of a service that runs once per cluster: "janitor",
// "janitor-2" and so on.
func (f *Fleet) Replicas(room string) []*Service {
	var out []*Service
	for i := range max(1, f.options.Replicas) {
		if s := f.Service(replica(room, i)); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func replica(room string, i int) string {
	if i == 0 {
		return room
	}
	return fmt.Sprintf("%s-%d", room, i+1)
}

// launchAll starts every replica of a service.
func (f *Fleet) launchAll(room string, args ...string) {
	if f.options.Replicas > 1 {
		life := f.options.Lease
		args = append(args, "--leader-elect", "--leader-elect-namespace", "nvsentinel",
			"--leader-elect-lease-duration", life.String(), "--leader-elect-renew-deadline", (life / 2).String(),
			"--leader-elect-retry-period", (life / 6).Round(time.Millisecond).String())
	}
	if f.options.Together {
		f.join(room, args)
		return
	}
	for i := range max(1, f.options.Replicas) {
		f.launchAs(replica(room, i), room, "", room, args)
	}
}

// Controller is the process of all controllers where they run together.
const Controller = "nvsentinel-controller"

// join adds a service to the process of all; --metrics-address is the process's.
func (f *Fleet) join(room string, args []string) {
	if !f.runs(room, "") {
		return
	}
	if len(f.together) == 0 {
		f.together = []string{"--controllers=" + room, "--metrics-address=127.0.0.1:0"}
	} else {
		f.together[0] += "," + room
	}
	for i := 0; i < len(args); i++ {
		name, flag := strings.CutPrefix(args[i], "--")
		switch {
		case name == "metrics-address":
			i++ // its value
		case flag:
			f.together = append(f.together, "--"+room+"."+name)
		default:
			f.together = append(f.together, args[i])
		}
	}
}

// launchTogether starts every replica of the process of all.
func (f *Fleet) launchTogether() {
	for i := range max(1, f.options.Replicas) {
		if len(f.together) > 0 {
			f.launchAs(replica(Controller, i), Controller, "", Controller, f.together)
		}
	}
}
