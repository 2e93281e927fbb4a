package cloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/daemon"
)

// verifyInterval is how often a plugin looks whether its credentials still show it a
// machine.
const verifyInterval = time.Minute

// sight is what the last look showed.
type sight struct {
	mu     sync.Mutex
	ok     bool
	detail string
}

func (s *sight) set(ok bool, detail string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.detail != detail
	s.ok, s.detail = ok, detail
	return changed
}

func (s *sight) get() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok, s.detail
}

// watch makes readiness report whether the cloud answers, from the start on: with the
// credentials and the rights with which a machine is asked about before a signal.
func (p *Plugin) watch(d *daemon.Daemon) {
	seen := &sight{detail: "not checked yet"}
	d.Ready("cloud", seen.get)
	d.Go("credentials", func(ctx context.Context) error {
		ticker := d.Clock.NewTicker(verifyInterval)
		defer ticker.Stop()
		for {
			if ok, detail := p.glance(ctx); seen.set(ok, detail) {
				p.Log.Info("cloud credentials checked", "ready", ok, "detail", detail)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			}
		}
	})
}

// queryInstance returns what the cloud reports about a Node's machine, and whether that
// verifies the Node.
func (p *Plugin) queryInstance(ctx context.Context, node *corev1.Node) (answer string, err error) {
	machine := node.Spec.ProviderID
	state, err := p.Provider.State(ctx, machine)
	if err != nil {
		return "", err
	}
	answer = fmt.Sprintf("machine %q of node %q is %s", machine, node.Name, state)
	if state == Gone {
		return answer, nil
	}
	id, err := p.Provider.Identity(ctx, machine)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, verification as the machine of the node is %s by %s", answer, p.Proof.Verify(id, node.Name), p.Proof.describe(id)), nil
}

// maxSampledInstances is about how many machines the cloud is asked at most: that of one Node may
// be gone for long, or not for this plugin.
const maxSampledInstances = 5

// glance asks the cloud about the machines of Nodes until it answers about one. Any
// answer will do, also that there is no such machine. Without a Node of this cloud there
// is nothing to ask about, and nothing to repair.
func (p *Plugin) glance(ctx context.Context) (ok bool, detail string) {
	asked := 0
	detail = "no node has a machine of this cloud"
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := p.Client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return false, fmt.Sprintf("listing nodes: %v", err)
		}
		for _, node := range list.Items {
			machine := node.Spec.ProviderID
			if machine == "" {
				continue
			}
			answer, err := p.queryInstance(ctx, &node)
			if err == nil {
				return true, answer
			}
			if status.Code(err) == codes.FailedPrecondition {
				continue // a machine of something else
			}
			detail = fmt.Sprintf("checking machine %q: %v", machine, err)
			if asked++; asked == maxSampledInstances {
				return false, detail
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return asked == 0, detail
		}
	}
}
