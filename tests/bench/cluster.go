package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

const (
	// nodePrefix is before the number of each node.
	nodePrefix = "gpu-"
	// repairPods is how many pods Repair's nodes bear.
	repairPods = 3
	// reboot is longer than any run: a machine that comes back would only add noise.
	reboot = 24 * time.Hour
	// creators is how many pods are created at once.
	creators = 32
)

// rebootNodes are the maintenance objects.
var rebootNodes = schema.GroupVersionResource{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1", Resource: "rebootnodes"}

// stage is one fleet with the nodes of each figure.
type stage struct {
	o     Options
	fleet *fleet.Fleet
	pen   *pen
	diary *diary
	nodes map[string]*corev1.Node

	agents, cordon, repair, drain, storm, otherArgs []string

	baselineCordon, baselineRepair []time.Duration
	baselineDrain, baselineStorm   time.Duration
}

// cluster measures what needs nodes. The baselines come first, while no service
// runs; the figure that leaves the most behind comes last.
func cluster(ctx context.Context, o Options) (rows []Row, err error) {
	s := &stage{o: o, pen: newPen(), diary: newDiary(), nodes: map[string]*corev1.Node{}}
	count := s.deal()
	o.log("starting %d nodes; then floors, then pods, then the services", count)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f, err := fleet.Start(ctx, fleet.Options{
		Nodes: count, Store: "postgresql", Root: o.Root, Bin: o.Bin, Progress: o.Progress,
		SettleTime: time.Hour, RebootTime: reboot, Runs: s.runs, Before: s.prepare,
		// The storm and what comes before it are more than half of all nodes.
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		stop() // who looks, before what is looked at
		err = errors.Join(err, f.Stop())
	}()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

// measure measures the selected figures, one after the other.
func (s *stage) measure(ctx context.Context) (rows []Row, err error) {
	for _, figure := range []struct {
		name    string
		measure func(context.Context) ([]Row, error)
	}{{Memory, s.measureMemory}, {Cordon, s.measureCordon}, {Repair, s.measureRepair}, {Drain, s.measureDrain}, {Storm, s.measureStorm}} {
		if !s.o.wants(figure.name) {
			continue
		}
		if figure.name != Memory && !s.o.Janitor {
			s.spare(ctx)
		}
		s.o.log("measuring %s", figure.name)
		found, err := figure.measure(ctx)
		rows = append(rows, found...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w\n%s", figure.name, err, s.fleet.Logs(nodePrefix+"0", 5))
		}
	}
	return append(rows, s.peaks()...), nil
}

// deal gives each selected figure its nodes and returns how many there are.
func (s *stage) deal() int {
	next := 0
	take := func(wanted bool, n int) (names []string) {
		if wanted {
			for range n {
				names = append(names, nodePrefix+strconv.Itoa(next))
				next++
			}
		}
		return names
	}
	wants := s.o.wants
	s.agents = take(wants(Memory), 1)
	s.cordon = take(wants(Cordon), s.o.Sizes.Cordons)
	s.repair = take(wants(Repair), s.o.Sizes.Repairs)
	s.drain = take(wants(Drain), s.o.Sizes.DrainNodes)
	s.storm = take(wants(Storm), s.o.Sizes.Storm)
	s.otherArgs = take(wants(Memory) || wants(Storm), s.o.Sizes.Nodes-next)
	return next
}

// runs starts the agents of one node and the control services.
func (s *stage) runs(service, node string) bool {
	if slices.Contains(spared, service) {
		return s.o.wants(Memory) || s.o.Janitor
	}
	return node == "" || slices.Contains(s.agents, node)
}

// spare ends the services that no further figure needs: what they do with the repair
// objects would be in the figures by chance.
func (s *stage) spare(ctx context.Context) {
	for _, name := range spared {
		if service := s.fleet.Service(name); service != nil {
			service.Stop(ctx)
		}
	}
}

// prepare measures the baselines and makes the pods, before any service runs.
func (s *stage) prepare(ctx context.Context, f *fleet.Fleet) error {
	s.fleet = f
	list, err := f.Cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		s.nodes[list.Items[i].Name] = &list.Items[i]
	}
	if err := s.watch(ctx); err != nil {
		return err
	}
	if err := s.measureBaselines(ctx); err != nil {
		return err
	}
	filler := 0
	if s.o.wants(Memory) && len(s.otherArgs) > 0 {
		filler = max(0, s.o.Sizes.Pods-len(s.drain)*s.o.Sizes.PodsPerNode-len(s.repair)*repairPods) / len(s.otherArgs)
	}
	s.o.log("making pods: %d on each of %d nodes, %d on each of %d", s.o.Sizes.PodsPerNode, len(s.drain), filler, len(s.otherArgs))
	for _, part := range []struct {
		nodes []string
		each  int
	}{{s.repair, repairPods}, {s.drain, s.o.Sizes.PodsPerNode}, {s.otherArgs, filler}} {
		if err := s.makePods(ctx, part.nodes, part.each); err != nil {
			return err
		}
	}
	return nil
}

// measureBaselines measures the baseline of each selected figure.
func (s *stage) measureBaselines(ctx context.Context) (err error) {
	client, n := s.fleet.Cluster.Client(), s.o.Sizes
	if s.o.wants(Cordon) {
		if s.baselineCordon, err = cordonBaseline(ctx, s.fleet.DSN, client, s.cordon, n.Cordons); err != nil {
			return fmt.Errorf("floor of %s: %w", Cordon, err)
		}
	}
	if s.o.wants(Repair) {
		if s.baselineRepair, err = repairBaseline(ctx, s.fleet.DSN, s.fleet.Cluster.Dynamic(), n.Repairs); err != nil {
			return fmt.Errorf("floor of %s: %w", Repair, err)
		}
	}
	if s.o.wants(Storm) {
		if s.baselineStorm, err = patchBaseline(ctx, client, s.storm); err != nil {
			return fmt.Errorf("floor of %s: %w", Storm, err)
		}
	}
	if !s.o.wants(Drain) {
		return nil
	}
	if err := s.makePods(ctx, s.drain, n.PodsPerNode); err != nil {
		return err
	}
	names := podsOn(s.drain, n.PodsPerNode)
	began := time.Now()
	if err := evictBaseline(ctx, client, names); err != nil {
		return fmt.Errorf("floor of %s: %w", Drain, err)
	}
	last, err := s.diary.await(ctx, n.Limit, keys("gone", names)...)
	s.baselineDrain = last.Sub(began)
	s.diary.forget(append(keys("gone", names), keys("running", names)...)...)
	return err
}

// makePods puts pods without an owner on nodes and waits until they run.
func (s *stage) makePods(ctx context.Context, nodes []string, each int) error {
	names := podsOn(nodes, each)
	err := atOnce(len(names), creators, func(i int) error {
		_, err := s.fleet.Cluster.AddPod(ctx, localcluster.PodSpec{
			Namespace: fleet.UserNamespace, Name: names[i], Node: names[i][:strings.LastIndex(names[i], "-pod-")],
		})
		return err
	})
	if err != nil {
		return err
	}
	_, err = s.diary.await(ctx, s.o.Sizes.Limit, keys("running", names)...)
	return err
}

// podsOn names the pods of nodes.
func podsOn(nodes []string, each int) []string {
	var names []string
	for _, n := range nodes {
		for i := range each {
			names = append(names, fmt.Sprintf("%s-pod-%d", n, i))
		}
	}
	return names
}

// keys are the diary's keys of one fact about many things.
func keys(fact string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fact + " " + n
	}
	return out
}
