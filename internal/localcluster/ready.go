package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

const (
	pollEvery  = 50 * time.Millisecond
	startLimit = 2 * time.Minute
)

// await polls until check reports nothing amiss. It gives up when ctx or limit ends or a part of
// the cluster dies, and then names what was last amiss.
func (c *Cluster) await(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
	defer cancel()
	ticker := clock.RealClock{}.NewTicker(pollEvery)
	defer ticker.Stop()
	var amiss error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || amiss == nil {
			amiss = err
		}
		select {
		case <-c.failed:
			return c.failure
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), amiss)
		case <-ticker.C():
		}
	}
}

// waitForAPI waits until the API server reports that it is ready.
func (c *Cluster) waitForAPI(ctx context.Context) error {
	err := c.await(ctx, startLimit, func(ctx context.Context) error {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	return nil
}

// waitForPodsAllowed waits for a namespace and, with controllers, for its service account,
// without which no pod can be created.
func (c *Cluster) waitForPodsAllowed(ctx context.Context, namespace string) error {
	err := c.await(ctx, startLimit, func(ctx context.Context) error {
		if !c.options.Controllers {
			_, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			return err
		}
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for the default service account of namespace %s: %w", namespace, err)
	}
	return nil
}

// WaitForNodes waits until every named node is Ready and bears no taint of Kubernetes' own, so
// that pods can be placed on it. A node that is cordoned on purpose counts as usable. Nodes are
// asked for one after the other, since a list of a thousand would keep the API server busy.
func (c *Cluster) WaitForNodes(ctx context.Context, names ...string) error {
	remaining := names
	err := c.await(ctx, startLimit, func(ctx context.Context) error {
		for ; len(remaining) > 0; remaining = remaining[1:] {
			node, err := c.client.CoreV1().Nodes().Get(ctx, remaining[0], metav1.GetOptions{ResourceVersion: "0"})
			if err != nil {
				return err
			}
			if why := unusable(node); why != "" {
				return fmt.Errorf("node %s: %s", node.Name, why)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w", err)
	}
	return nil
}

// unusable returns why no pod can be placed on a node, "" when one can.
func unusable(node *corev1.Node) string {
	if !Ready(node) {
		return "not Ready"
	}
	for _, taint := range node.Spec.Taints {
		switch taint.Key {
		case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable:
			return "taint " + taint.Key
		}
	}
	return ""
}

// Ready reports whether a node's Ready condition is True.
func Ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
