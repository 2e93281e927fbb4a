package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// userWork is what users run: two pods that may not both be evicted at once, and not even one of
// them while the budget forbids it.
const userWork = `apiVersion: v1
kind: Namespace
metadata: {name: user}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: train, namespace: user}
spec:
  replicas: 2
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: train, image: "` + registry + `/pause:v1"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget, namespace: user}
spec: {minAvailable: 2, selector: {matchLabels: {app: train}}}
`

// plugin is the command that prints the plugin's example, as docs/get-started/install.md has it
// for the profile.
func (j *journey) plugin() string {
	if j.Profile != "small" {
		return "cat examples/deploy/rack-plugin.yaml"
	}
	return "sed 's/nvsentinel:janitor/nvsentinel:nvsentinel-controller/; s/name: janitor/name: nvsentinel-controller/' examples/deploy/rack-plugin.yaml"
}

// prepare brings users' pods and the provider's plugin, by its example, with a
// certificate of its own.
func (j *journey) prepare(ctx context.Context) (string, error) {
	cert, err := j.cluster.Certificate("rack-plugin.rack-plugin.svc")
	err = errors.Join(err, j.write("user.yaml", userWork), j.write("tls.crt", string(cert.Cert)), j.write("tls.key", string(cert.Key)),
		j.write("ca.crt", string(cert.Authority)))
	if err != nil {
		return "", err
	}
	j.values = append(j.values, "-f examples/deploy/values.yaml")
	_, err = j.run(ctx, `kubectl apply -f user.yaml
kubectl create namespace rack-plugin
kubectl -n rack-plugin create secret tls rack-plugin-tls --cert tls.crt --key tls.key
kubectl -n `+namespace+` create secret generic rack-plugin-ca --from-file=ca.crt
`+j.plugin()+` | kubectl apply -f -
kubectl -n user rollout status deployment/train --timeout 2m
kubectl -n rack-plugin rollout status deployment/rack-plugin --timeout 2m`)
	return "users' pods and the plugin of examples/deploy run", err
}

// quarantine has a node cordoned for a fault.
func (j *journey) quarantine(ctx context.Context) (string, error) {
	if err := j.upgrade(ctx, "quarantine"); err != nil {
		return "", err
	}
	if err := gpuFalls(1); err != nil {
		return "", err
	}
	return j.nodeIs(ctx, time.Minute, "cordoned", quarantined)
}

// upgradeMeanwhile replaces the pods of two controllers while their only node is
// cordoned.
func (j *journey) upgradeMeanwhile(ctx context.Context) (string, error) {
	err := j.upgrade(ctx, "quarantine", "--set pods.podAnnotations.generation=two")
	if err != nil {
		return "", err
	}
	return j.ready(ctx)
}

// quarantineLease is the Lease of the process that evaluates faults.
const quarantineLease = "fault-quarantine-events"

// leader kills the process that evaluates faults, and waits until another does so.
func (j *journey) leader(ctx context.Context) (string, error) {
	leases := j.client.CoordinationV1().Leases(namespace)
	var holder string
	var leads corev1.Pod
	err := until(ctx, time.Minute, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, quarantineLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder = *lease.Spec.HolderIdentity
		pods, err := j.pods(ctx)
		for _, p := range pods {
			if strings.HasPrefix(holder, p.Name) {
				leads = p
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("%q, which is no pod, leads", holder))
	})
	if err == nil {
		err = j.kill(ctx, &leads)
	}
	if err != nil {
		return "", err
	}
	began := time.Now()
	err = errors.Join(err, until(ctx, time.Minute, func(ctx context.Context) error {
		now, err := leases.Get(ctx, quarantineLease, metav1.GetOptions{})
		if err == nil && *now.Spec.HolderIdentity == holder {
			err = errors.New("nobody else leads")
		}
		return err
	}))
	found := fmt.Sprintf("another leads after %.1f s", time.Since(began).Seconds())
	err = errors.Join(err, gpuFalls(4))
	evaluated, problem := j.nodeIs(ctx, time.Minute, "marked with the next fault", func(n *corev1.Node) bool {
		return strings.Contains(n.Annotations[nodemark.QuarantineHealthEvent], "0000:14:00")
	})
	found = found + ", " + evaluated
	err = errors.Join(err, problem, until(ctx, 2*time.Minute, func(ctx context.Context) error {
		p, err := j.client.CoreV1().Pods(namespace).Get(ctx, leads.Name, metav1.GetOptions{})
		if err == nil && (unready(p) != "" || p.Status.ContainerStatuses[0].RestartCount == 0) {
			err = fmt.Errorf("pod %s is not back", leads.Name)
		}
		return err
	}))
	return found, err
}

// kill the processes of a pod's containers.
func (j *journey) kill(ctx context.Context, p *corev1.Pod) error {
	return j.signal(ctx, p, syscall.SIGKILL)
}

// signal the processes of a pod's containers.
func (j *journey) signal(ctx context.Context, p *corev1.Pod, with syscall.Signal) error {
	tasks, err := j.machine.processes(ctx)
	killed := 0
	for _, t := range tasks {
		for _, c := range p.Status.ContainerStatuses {
			if c.ContainerID == "containerd://"+t.container {
				err = errors.Join(err, t.signal(with))
				killed++
			}
		}
	}
	if killed == 0 {
		err = errors.Join(err, fmt.Errorf("pod %s has no process", p.Name))
	}
	return err
}

// outage is how long the store is away.
const outage = 30 * time.Second

// storeAway has a fault come while the store is away: every pod stays Ready, and the
// fault is there when the store is back.
func (j *journey) storeAway(ctx context.Context) (string, error) {
	if err := j.store.Kill(); err != nil {
		return "", err
	}
	back := time.Now().Add(outage)
	err := gpuFalls(2)
	unreadyPods := map[string]bool{}
	for err == nil && time.Now().Before(back) {
		var pods []corev1.Pod
		pods, err = j.pods(ctx)
		for i := range pods {
			if unready(&pods[i]) != "" {
				unreadyPods[workload(&pods[i])] = true
			}
		}
		time.Sleep(time.Second)
	}
	if err := errors.Join(err, j.store.Restart(ctx)); err != nil {
		return "", err
	}
	found, err := j.waitForOutput(ctx, 2*time.Minute, "nvsentinel why --all "+nodeName, "PCI:0000:12:00; boot")
	if len(unreadyPods) > 0 {
		err = errors.Join(err, fmt.Errorf("pods were not Ready meanwhile: %v", unreadyPods))
	}
	return "every pod stayed Ready for " + outage.String() + "; the fault is told as " + found, err
}

// drain empties the node; a budget holds it up until a person gives way.
func (j *journey) drain(ctx context.Context) (string, error) {
	if err := j.upgrade(ctx, "drain"); err != nil {
		return "", err
	}
	if _, err := j.waitForOutput(ctx, time.Minute, "nvsentinel why "+nodeName, "user/budget"); err != nil {
		return "", err
	}
	if _, err := j.run(ctx, "kubectl -n user delete poddisruptionbudget budget"); err != nil {
		return "", err
	}
	found, err := j.nodeIs(ctx, time.Minute, "drained", func(n *corev1.Node) bool {
		return n.Labels[nodemark.StateLabel] == "drain-succeeded"
	})
	return "held up by user/budget, which why names; without it " + found, err
}

// repair has the janitor reboot the machine through the plugin; all containers die,
// those of the suite among them, and the node comes back into service.
func (j *journey) repair(ctx context.Context) (string, error) {
	began := time.Now()
	if err := j.upgrade(ctx, "repair"); err != nil {
		return "", err
	}
	if _, err := j.nodeIs(ctx, 3*time.Minute, "released", func(n *corev1.Node) bool { return untouched(n) && !faulty(n) }); err != nil {
		return "", err
	}
	found := fmt.Sprintf("%d reboot, released %.1f s after the upgrade", j.machine.rebooted(), time.Since(began).Seconds())
	if n := j.machine.rebooted(); n != 1 {
		return "", fmt.Errorf("%d reboots, want 1", n)
	}
	_, err := j.run(ctx, "kubectl -n user rollout status deployment/train --timeout 2m")
	return found, err
}
