package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const (
	janitorName = "janitor"
	// janitorWorkers is the janitor's default: how many repairs it works on at once.
	janitorWorkers = 16
	// answerTime is how long the plugin takes to answer a signal, rebootTime how
	// long a machine takes to show another boot id after it.
	answerTime = 50 * time.Millisecond
	rebootTime = 3 * time.Second
)

// fast is a plugin whose machines reboot by themselves.
type fast struct {
	v1.UnimplementedCSPPluginServiceServer
	run *janitorRun

	mu      sync.Mutex
	signals map[string]int
	reboots sync.WaitGroup
	err     error
}

// SendRebootSignal takes a reboot.
func (f *fast) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if err := pause(ctx, answerTime); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.signals[q.GetNodeName()]++
	f.mu.Unlock()
	f.reboots.Add(1)
	time.AfterFunc(rebootTime, func() {
		defer f.reboots.Done()
		err := f.run.boot(context.WithoutCancel(ctx), q.GetNodeName(), "after")
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = errors.Join(f.err, err)
	})
	return &v1.SendRebootSignalResponse{RequestId: q.GetIdempotencyKey()}, nil
}

// IsNodeReady leaves it to the Node.
func (f *fast) IsNodeReady(context.Context, *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	return &v1.IsNodeReadyResponse{IsReady: true}, nil
}

// boot gives a node another boot id, as a kubelet does after a reboot.
func (r *janitorRun) boot(ctx context.Context, node, id string) error {
	_, err := r.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, id), metav1.PatchOptions{}, "status")
	return err
}

// janitorRun is an API server with nodes, a plugin and one janitor.
type janitorRun struct {
	objectsRun
	plugin *fast
	// busy is the janitor's own CPU time over all reboots.
	busy time.Duration
	// bare is how long the same requests take without a janitor.
	bare time.Duration
}

// reboots measures how long the janitor takes for many RebootNodes at once.
func reboots(ctx context.Context, o Options) (rows []Row, err error) {
	r := &janitorRun{objectsRun: objectsRun{o: o}}
	if r.dir, err = os.MkdirTemp("", "bench-janitor-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.cluster, err = localcluster.Start(ctx, localcluster.Options{Progress: o.Progress}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Stop()) }()
	r.client = r.cluster.Client()
	r.plugin = &fast{run: r, signals: map[string]int{}}
	if err := r.furnishJanitor(ctx); err != nil {
		return nil, err
	}
	if r.bare, err = r.bareReboots(ctx); err != nil {
		return nil, err
	}
	end, err := r.janitor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if rows, err = r.measureReboots(ctx); err != nil {
		log, _ := os.ReadFile(filepath.Join(r.dir, "log")) // what there is of it
		return rows, fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2000):])
	}
	return rows, nil
}

// furnishJanitor writes the kinds, the rights, the nodes and the counter of
// requests.
func (r *janitorRun) furnishJanitor(ctx context.Context) error {
	for _, pattern := range []string{"crds/janitor.*.yaml", "manifests/rbac.yaml"} {
		files, err := filepath.Glob(filepath.Join(r.o.Root, "distros/helm/nvsentinel", pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("no files %s: %w", pattern, err)
		}
		for _, file := range files {
			text, err := os.Open(file)
			if err == nil {
				err = errors.Join(r.cluster.Apply(ctx, text), text.Close())
			}
			if err != nil {
				return err
			}
		}
	}
	for i, s := range []struct {
		name  string
		verbs []string
	}{{"bench-watches", []string{"watch"}}, {"bench-rest", []string{"*"}}} {
		schema := flowSchema(s.name, int32(100+i), []string{"*"}, s.verbs)
		schema.Spec.Rules[0].Subjects[0].ServiceAccount.Name = janitorName
		if _, err := r.client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("counting requests: %w", err)
		}
	}
	return atOnce(r.o.Sizes.Reboots, objectCreators, func(i int) error {
		_, err := r.cluster.AddNode(ctx, localcluster.NodeSpec{Name: fmt.Sprintf("node-%d", i), BootID: "before"})
		return err
	})
}

// janitor starts the plugin and the service under its own account.
func (r *janitorRun) janitor(ctx context.Context) (end func() error, err error) {
	kubeconfig, err := r.cluster.ServiceAccountKubeconfig(ctx, "nvsentinel", janitorName, 24*time.Hour)
	if err != nil {
		return nil, err
	}
	host, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	served, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(served, host, r.plugin, plugin.Options{}) }()
	log, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		stop()
		return nil, errors.Join(err, <-done)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(r.o.Bin, janitorName), "--kubeconfig", kubeconfig, "--csp-plugin-host", host.Addr().String(), "--metrics-address", "127.0.0.1:0",
		"--workers", fmt.Sprint(janitorWorkers))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		stop()
		return nil, errors.Join(err, <-done)
	}
	r.pid = cmd.Process.Pid
	return func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // by our signal
		r.plugin.reboots.Wait()
		stop()
		return errors.Join(r.plugin.err, <-done)
	}, nil
}

// requests is how many requests of the janitor the API server has served, without
// watches or with nothing but them.
func (r *janitorRun) requests(ctx context.Context, schema string) (float64, error) {
	return r.number(ctx, `apiserver_flowcontrol_dispatched_requests_total{flow_schema="`+schema+`"`, true)
}

// measureReboots creates all objects at once and waits for the last to succeed.
func (r *janitorRun) measureReboots(ctx context.Context) ([]Row, error) {
	err := until(ctx, r.o.Sizes.Limit, "the janitor to be ready", func() (bool, error) {
		watches, err := r.requests(ctx, "bench-watches")
		return watches >= 3, err // of nodes and of the two kinds
	})
	if err != nil {
		return nil, err
	}
	before, err := r.requests(ctx, "bench-rest")
	if err != nil {
		return nil, err
	}
	busy, err := cpu(r.pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.rebootAll(ctx); err != nil {
		return nil, err
	}
	took := time.Since(began)
	if r.busy, err = cpu(r.pid); err != nil {
		return nil, err
	}
	r.busy -= busy
	after, err := r.requests(ctx, "bench-rest")
	if err != nil {
		return nil, err
	}
	rows := r.rebootRows(took, after-before)
	most, err := memory(r.pid, "VmHWM")
	if err != nil {
		return rows, err
	}
	own, err := memory(r.pid, "RssAnon")
	return append(rows, Row{
		Figure: "janitor: memory at most", Measured: bytesOf(most), Target: Target{Under: Quantity{controlTarget, Bytes, true}},
		Note: fmt.Sprintf("resident; heap and stacks %.1f MB at the end", float64(own)/1e6),
	}), err
}

// rebootAll creates an object for every node and waits until all have succeeded,
// each by one signal.
func (r *janitorRun) rebootAll(ctx context.Context) error {
	n := r.o.Sizes.Reboots
	if err := r.createReboots(ctx, "reboot-"); err != nil {
		return err
	}
	err := until(ctx, r.o.Sizes.Limit, "all reboots", func() (bool, error) {
		done, err := r.number(ctx, `janitor_actions_count{action_type="reboot",status="succeeded"}`, false)
		return int(done) == n, err
	})
	r.plugin.mu.Lock()
	defer r.plugin.mu.Unlock()
	for node, count := range r.plugin.signals {
		if count != 1 {
			err = errors.Join(err, fmt.Errorf("node %s was told %d times", node, count))
		}
	}
	return err
}

// createReboots creates an object for every node.
func (r *janitorRun) createReboots(ctx context.Context, prefix string) error {
	return atOnce(r.o.Sizes.Reboots, objectCreators, func(i int) error {
		_, err := r.objects().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
			"metadata": map[string]any{"name": fmt.Sprintf("%s%d", prefix, i)}, "spec": map[string]any{"nodeName": fmt.Sprintf("node-%d", i)},
		}}, metav1.CreateOptions{})
		return err
	})
}

// rebootRows are the time and the requests.
func (r *janitorRun) rebootRows(took time.Duration, requests float64) []Row {
	n := r.o.Sizes.Reboots
	baseline := rebootTime + time.Duration(n)*answerTime/janitorWorkers
	return []Row{
		{
			Figure: fmt.Sprintf("janitor: %d reboots asked for at once, all done", n), Measured: seconds(took), Baseline: seconds(baseline), Target: Target{Within: 1.5},
			Note: fmt.Sprintf("floor: %s reboot + %d answers of %s, %d at once", rebootTime, n, answerTime, janitorWorkers),
		},
		{
			Figure: fmt.Sprintf("janitor: %d reboots against their API requests alone", n), Measured: seconds(took), Baseline: seconds(r.bare), Target: Target{Within: 1.5},
			Note: "floor: the same writes and reads, in the same order, made by a client that decides nothing",
		},
		{
			Figure: "janitor: API requests per reboot", Measured: Quantity{requests / float64(n), Times, true}, Target: Target{Under: Quantity{16, Times, true}},
			Note: fmt.Sprintf("counted by the API server, without watches; nine of them are writes; the janitor's own CPU %s", r.busy.Round(10*time.Millisecond)),
		},
	}
}
