package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// condition that the connector writes for faults of the kernel log.
const condition = "SysLogsXIDError"

// node is the Node.
func (j *journey) node(ctx context.Context) (*corev1.Node, error) {
	return j.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
}

// nodeIs waits until the Node is in a state, and returns how long that took.
func (j *journey) nodeIs(ctx context.Context, limit time.Duration, what string, is func(*corev1.Node) bool) (string, error) {
	began := time.Now()
	err := until(ctx, limit, func(ctx context.Context) error {
		n, err := j.node(ctx)
		if err == nil && !is(n) {
			err = fmt.Errorf("the node is not %s", what)
		}
		return err
	})
	return fmt.Sprintf("%s after %.1f s", what, time.Since(began).Seconds()), err
}

// untouched reports whether a Node has nothing of the suite but a condition.
func untouched(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && n.Annotations[nodemark.SessionAnnotation] == "" && n.Labels[nodemark.StateLabel] == ""
}

// quarantined reports whether a Node is cordoned for a fault.
func quarantined(n *corev1.Node) bool {
	return n.Spec.Unschedulable && n.Annotations[nodemark.SessionAnnotation] != ""
}

// faulty reports whether the Node's condition shows a fault.
func faulty(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waitForOutput waits until a command prints all words, and returns how long that took.
func (j *journey) waitForOutput(ctx context.Context, limit time.Duration, command string, words ...string) (string, error) {
	began := time.Now()
	err := until(ctx, limit, func(ctx context.Context) error {
		out, err := j.run(ctx, command+" || true") // its exit code shows the state of the node
		for _, word := range words {
			if !strings.Contains(out, word) {
				err = errors.Join(err, fmt.Errorf("%s does not say %q: %s", command, word, out))
			}
		}
		return err
	})
	return fmt.Sprintf("%q after %.1f s", strings.Join(words, ", "), time.Since(began).Seconds()), err
}

// watch causes a fault, which is evaluated and not acted on.
func (j *journey) watch(ctx context.Context) (string, error) {
	if err := gpuFalls(0); err != nil {
		return "", err
	}
	shown, err := j.nodeIs(ctx, time.Minute, "shown faulty", faulty)
	if err != nil {
		return "", err
	}
	if _, err := j.waitForOutput(ctx, time.Minute, "nvsentinel why "+nodeName, "DryRun"); err != nil {
		return "", err
	}
	status, err := j.waitForOutput(ctx, time.Minute, "nvsentinel status", "would have been quarantined")
	if err != nil {
		return "", err
	}
	n, err := j.node(ctx)
	if err == nil && !untouched(n) {
		err = errors.New("the node was touched in a dry run")
	}
	return shown + ", status says " + status, err
}
