package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodePlugin are the values of docs/tasks/reboot-through-the-node.md, with a short time for a
// kubelet that does not react.
const nodePlugin = "--set janitor.cspPlugin.host=csp-plugin-node,janitor.cspPlugin.caSecretName=," +
	"cspPluginNode.enabled=true,cspPluginNode.startTimeout=10s,cspPluginTls.selfSigned=true"

// rebootNode requests a reboot as the page does.
const rebootNode = `apiVersion: janitor.dgxc.nvidia.com/v1alpha1
kind: RebootNode
metadata: {name: NAME}
spec: {nodeName: ` + nodeName + `}
`

// rebootJobs selects the Jobs of the plugin.
const rebootJobs = "app.kubernetes.io/name=node-reboot"

// throughNode has the machine reboot through a Job on itself.
func (j *journey) throughNode(ctx context.Context) (string, error) {
	before := j.machine.rebooted()
	if err := j.upgrade(ctx, "repair", nodePlugin); err != nil {
		return "", err
	}
	began := time.Now()
	if err := j.request(ctx, "first-reboot"); err != nil {
		return "", err
	}
	if _, err := j.run(ctx, "kubectl wait rebootnode/first-reboot --for=condition=NodeReady --timeout=4m"); err != nil {
		return "", err
	}
	took := time.Since(began)
	if n := j.machine.rebooted() - before; n != 1 {
		return "", fmt.Errorf("%d reboots, want 1", n)
	}
	records, err := os.ReadFile(kernelRecords)
	if err != nil || !strings.Contains(string(records), "requested by csp-plugin-node for maintenance object") {
		return "", fmt.Errorf("the kernel log has %q: %w", records, err)
	}
	return fmt.Sprintf("the kubelet ran the Job, logind rebooted, %.1f s from the request to NodeReady; the kernel log names the object", took.Seconds()), untouchedKernel()
}

// unresponsive requests a reboot while the kubelet stands still. The Job of the request is
// deleted, and does not run when the kubelet continues.
func (j *journey) unresponsive(ctx context.Context) (found string, err error) {
	before := j.machine.rebooted()
	if err := j.machine.kubeletSignal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	stopped := time.Now()
	err = j.request(ctx, "second-reboot")
	if err == nil {
		_, err = j.run(ctx, `kubectl wait rebootnode/second-reboot --for=jsonpath='{.status.conditions[?(@.type=="NodeReady")].reason}'=NodeUnresponsive --timeout=2m`)
	}
	stood := time.Since(stopped)
	if err = errors.Join(err, j.machine.kubeletSignal(syscall.SIGCONT)); err != nil {
		return "", err
	}
	err = until(ctx, 2*time.Minute, func(ctx context.Context) error {
		pods, err := j.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: rebootJobs})
		for i := range pods.Items {
			if pods.Items[i].Status.Phase != corev1.PodFailed { // that of the first reboot
				return fmt.Errorf("pod %s is still there", pods.Items[i].Name)
			}
		}
		return err
	})
	if n := j.machine.rebooted() - before; n != 0 {
		err = errors.Join(err, fmt.Errorf("%d reboots, want none", n))
	}
	err = errors.Join(err, untouchedKernel())
	if err == nil {
		// As the page says under Undo: the Job of a reboot is kept for a day.
		_, err = j.run(ctx, "kubectl delete rebootnode first-reboot second-reboot && kubectl -n "+namespace+" delete jobs -l "+rebootJobs)
	}
	return fmt.Sprintf("NodeUnresponsive %.1f s after the kubelet stood still; its Job is deleted, and nothing ran when the kubelet continued", stood.Seconds()), err
}

// request creates a RebootNode.
func (j *journey) request(ctx context.Context, name string) error {
	if err := j.write("reboot.yaml", strings.ReplaceAll(rebootNode, "NAME", name)); err != nil {
		return err
	}
	_, err := j.run(ctx, "kubectl create -f reboot.yaml")
	return err
}

// untouchedKernel returns an error if the kernel got a sysrq command.
func untouchedKernel() error {
	commands, err := os.ReadFile(sysrqCommands)
	if err == nil && len(commands) > 0 {
		err = fmt.Errorf("the kernel got the sysrq commands %q although logind accepts reboots", commands)
	}
	return err
}
