package journey

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// audit follows every record's changes and keeps those no table allows.
type audit struct {
	moves map[record.Transition]bool

	mu   sync.Mutex
	last map[string]record.Record
	bad  map[string][]string
}

func newAudit() *audit {
	a := &audit{moves: map[record.Transition]bool{}, last: map[string]record.Record{}, bad: map[string][]string{}}
	for _, m := range record.Transitions() {
		a.moves[m] = true
	}
	// The feed may show several changes as one: what can be reached is legal.
	for grown := true; grown; {
		grown = false
		for x := range a.moves {
			for y := range a.moves {
				z := record.Transition{Field: x.Field, From: x.From, To: y.To}
				if x.Field == y.Field && x.To == y.From && !a.moves[z] {
					a.moves[z], grown = true, true
				}
			}
		}
	}
	return a
}

// follow reads the feed until ctx ends; while the database is away it waits.
func (a *audit) follow(ctx context.Context, s store.Store) error {
	for {
		feed, err := s.Feed(ctx, "journey-audit", record.Selector{Name: "audit"})
		for err == nil {
			var r record.Record
			if r, _, err = feed.Next(ctx); err == nil {
				a.see(r)
			}
		}
		if feed != nil {
			_ = feed.Close() // it is of no use any more
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

func (a *audit) see(r record.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last[r.ID]
	a.last[r.ID] = r
	for _, m := range []record.Transition{
		{Field: "nodequarantined", From: string(before.Status.NodeQuarantined), To: string(r.Status.NodeQuarantined)},
		{Field: "userpodsevictionstatus", From: string(before.Status.UserPodsEvictionStatus.Status), To: string(r.Status.UserPodsEvictionStatus.Status)},
		{Field: "quarantineverdict", From: string(before.Reason()), To: string(r.Reason())},
	} {
		if m.From != m.To && !a.moves[m] {
			a.bad[r.Event.NodeName] = append(a.bad[r.Event.NodeName], fmt.Sprintf("record %s: %s from %q to %q", r.ID, m.Field, m.From, m.To))
		}
	}
}

func (a *audit) illegal(node string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bad[node]
}

// sessions follows the session every Node object bears, and keeps those that
// came back after they had ended.
type sessions struct {
	mu   sync.Mutex
	now  map[types.UID]string
	past map[types.UID]map[string]bool
	bad  map[string][]string // by node name
}

func newSessions() *sessions {
	return &sessions{now: map[types.UID]string{}, past: map[types.UID]map[string]bool{}, bad: map[string][]string{}}
}

// follow watches the Nodes until ctx ends; while the API server is away it waits.
func (s *sessions) follow(ctx context.Context, client kubernetes.Interface) error {
	for {
		s.watch(ctx, client)
		if !pause(ctx, 100*time.Millisecond) {
			return nil
		}
	}
}

// watch sees one list and what follows it, until the API server goes away.
func (s *sessions) watch(ctx context.Context, client kubernetes.Interface) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		s.see(&list.Items[i])
	}
	changes, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer changes.Stop()
	for c := range changes.ResultChan() {
		if node, ok := c.Object.(*corev1.Node); ok && c.Type != watch.Deleted {
			s.see(node)
		}
	}
}

func (s *sessions) see(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, before := node.Annotations[nodemark.SessionAnnotation], s.now[node.UID]
	if session == before {
		return
	}
	s.now[node.UID] = session
	if s.past[node.UID] == nil {
		s.past[node.UID] = map[string]bool{}
	}
	if before != "" {
		s.past[node.UID][before] = true
	}
	if s.past[node.UID][session] {
		s.bad[node.Name] = append(s.bad[node.Name], fmt.Sprintf("session %s came back at resourceVersion %s", session, node.ResourceVersion))
	}
}

func (s *sessions) again(node string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[node]
}
