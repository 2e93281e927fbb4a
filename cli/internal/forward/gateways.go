// Package forward reaches a gateway of the suite as kubectl port-forward does: through
// the API server, by the caller's own rights.
package forward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nvidia/nvsentinel/store-client/remote"
)

// selector finds the pods of gateways, as the chart labels them.
const selector = "app.kubernetes.io/name=platform-connectors-gateway"

// gatewayTimeout bounds the way into one gateway: one that hangs must leave time for another.
const gatewayTimeout = 5 * time.Second

// Tunnels opens tunnels into pods.
type Tunnels interface {
	Open(ctx context.Context, pod string) (httpstream.Connection, error)
}

// Gateways are those of an installation. They keep one tunnel, into any of them, and
// open another one when it has ended.
type Gateways struct {
	Pods      typedcorev1.PodsGetter
	Namespace string
	Tunnels   Tunnels

	mu  sync.Mutex
	now *tunnel
}

// Dial connects to where a gateway lets its store be read; it is a remote.Dial. Its
// error names what is missing.
func (g *Gateways) Dial(ctx context.Context) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now != nil && g.now.open() {
		if c, err := g.now.dial(ctx); err == nil {
			return c, nil
		}
		g.close()
	}
	ready, err := g.ready(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, pod := range ready {
		c, err := g.enter(ctx, &pod)
		if err == nil {
			return c, nil
		}
		problems = append(problems, fmt.Errorf("gateway %s: %w", pod.Name, err))
	}
	return nil, errors.Join(problems...)
}

// Close ends the tunnel.
func (g *Gateways) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
}

func (g *Gateways) close() {
	if g.now != nil {
		_ = g.now.conn.Close() // what was asked for was answered, or failed by itself
		g.now = nil
	}
}

// ready are the gateways that can be asked, in an order of chance, so that many who
// look do not all look through the same.
func (g *Gateways) ready(ctx context.Context) ([]corev1.Pod, error) {
	list, err := g.Pods.Pods(g.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("reading the store through a gateway requires permission to list pods in namespace %s (see the role in docs/reference/cli.md), or set --store: %w", g.Namespace, err)
	case err != nil:
		return nil, fmt.Errorf("finding a gateway: %w", err)
	case len(list.Items) == 0:
		return nil, fmt.Errorf("finding a gateway: namespace %s has none (no pod with %s), set the namespace of the installation with -n, "+
			"or read the store directly with --store or NVSENTINEL_STORE", g.Namespace, selector)
	}
	ready := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isReady(&p) })
	if len(ready) == 0 {
		return nil, fmt.Errorf("finding a gateway: none in namespace %s is Ready, run kubectl -n %s get pods -l %s", g.Namespace, g.Namespace, selector)
	}
	rand.Shuffle(len(ready), func(i, j int) { ready[i], ready[j] = ready[j], ready[i] })
	return ready, nil
}

func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// enter opens a tunnel into a gateway, and keeps it if the store can be read there.
func (g *Gateways) enter(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()
	conn, err := g.Tunnels.Open(ctx, pod.Name)
	if err != nil {
		if strings.Contains(err.Error(), "forbidden") { // a refused upgrade has a text and no code
			err = fmt.Errorf("forwarding a port to the gateway requires permission to create pods/portforward in namespace %s (see the role in docs/reference/cli.md), or set --store: %w", g.Namespace, err)
		}
		return nil, err
	}
	t := &tunnel{conn: conn, port: port(pod)}
	probe := remote.Open(t.dial)
	err = probe.Ping(ctx)
	_ = probe.Close() // it releases its connection, which had its answer
	if err == nil {
		var c net.Conn
		if c, err = t.dial(ctx); err == nil {
			g.now = t
			return c, nil
		}
	}
	_ = conn.Close() // nothing was asked for yet
	if c, ok := errors.AsType[closed](err); ok {
		err = c
	}
	return nil, err
}

// port returns the port at which the pod lets its store be read: the one that it
// declares, or the default.
func port(pod *corev1.Pod) int32 {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == remote.PortName {
				return p.ContainerPort
			}
		}
	}
	return remote.Port
}
