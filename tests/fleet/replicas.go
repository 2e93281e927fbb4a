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
func (f *Fleet) Elects(service string) bool { return f.options.Replicas > 1 && leases[service] != "" }

// Leading is since when the present leader of a service leads; zero while none does.
func (f *Fleet) Leading(ctx context.Context, service string) (time.Time, error) {
	lease, err := f.Cluster.Client().CoordinationV1().Leases("nvsentinel").Get(ctx, leases[service], metav1.GetOptions{})
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
func (f *Fleet) Replicas(service string) []*Service {
	var out []*Service
	for i := range max(1, f.options.Replicas) {
		if s := f.Service(replica(service, i)); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func replica(service string, i int) string {
	if i == 0 {
		return service
	}
	return fmt.Sprintf("%s-%d", service, i+1)
}

// launchAll starts every replica of a service.
func (f *Fleet) launchAll(service string, args ...string) {
	if f.options.Replicas > 1 {
		leaseDuration := f.options.Lease
		args = append(args, "--leader-elect", "--leader-elect-namespace", "nvsentinel",
			"--leader-elect-lease-duration", leaseDuration.String(), "--leader-elect-renew-deadline", (leaseDuration / 2).String(),
			"--leader-elect-retry-period", (leaseDuration / 6).Round(time.Millisecond).String())
	}
	if f.options.Together {
		f.join(service, args)
		return
	}
	for i := range max(1, f.options.Replicas) {
		f.launchAs(replica(service, i), service, "", service, args)
	}
}

// Controller is the process of all controllers where they run together.
const Controller = "nvsentinel-controller"

// join adds a service to the process of all; --metrics-address is the process's.
func (f *Fleet) join(service string, args []string) {
	if !f.runs(service, "") {
		return
	}
	if len(f.together) == 0 {
		f.together = []string{"--controllers=" + service, "--metrics-address=127.0.0.1:0"}
	} else {
		f.together[0] += "," + service
	}
	for i := 0; i < len(args); i++ {
		name, flag := strings.CutPrefix(args[i], "--")
		switch {
		case name == "metrics-address":
			i++ // its value
		case flag:
			f.together = append(f.together, "--"+service+"."+name)
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
