package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

const (
	// namespace of the installation.
	namespace = "nvsentinel"
	// kernelFolder has the log device of the played kernel, in a folder that the
	// monitor's pod has.
	kernelFolder = "/var/log/e2e/kernel"
)

// journey is one run: the chart's life on one node.
type journey struct {
	*site
	shell
	client kubernetes.Interface
	page   string // the pages with the commands that are run
	values []string
	before []string // the cluster without the suite
	logs   *logs
	steps  []row
}

// row of the table at the end.
type row struct {
	name, found string
	took        time.Duration
	err         error
}

// step is one thing that must hold; the steps build on each other.
type step struct {
	name string
	do   func(*journey, context.Context) (found string, err error)
}

// stepLimit bounds a step.
const stepLimit = 5 * time.Minute

// Run brings everything up, goes the whole way and writes a table of it.
func Run(ctx context.Context, o Options) error {
	s, err := start(ctx, o)
	if err != nil {
		return fmt.Errorf("bringing up the node: %w", err)
	}
	j := &journey{site: s, client: s.cluster.Client()}
	if j.shell, err = newShell(s); err != nil {
		return err
	}
	if j.page, err = pages(o.Root); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j.logs = follow(ctx, "/var/log/pods")
	err = j.goAll(ctx)
	j.table()
	if o.Keep {
		j.log("kept until an interrupt; a shell in it: nsenter --all --target $(pgrep -xo e2e) env %s bash", strings.Join(j.env, " "))
		<-ctx.Done()
	}
	return err
}

// goAll goes the way, to its end or to the first step that does not hold.
func (j *journey) goAll(ctx context.Context) error {
	for _, one := range steps {
		if err := j.step(ctx, one); err != nil {
			return errors.Join(err, j.evidence())
		}
	}
	return nil
}

// step does one, and notes how it went.
func (j *journey) step(ctx context.Context, one step) error {
	j.log("%s ...", one.name)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	found, err := one.do(j, ctx)
	err = errors.Join(err, j.complaints(ctx))
	if failure := j.cluster.Failure(); failure != nil {
		err = errors.Join(err, failure)
	}
	took := time.Since(began)
	j.steps = append(j.steps, row{one.name, found, took, err})
	if err != nil {
		j.log("%s: FAILED: %v", one.name, err)
		return fmt.Errorf("%s: %w", one.name, err)
	}
	j.log("%s: %s (%.1f s)", one.name, found, took.Seconds())
	return nil
}

// complaints are the lines of a step's logs that none should have.
func (j *journey) complaints(ctx context.Context) error {
	installed, err := j.workloads(ctx)
	if err != nil {
		return err
	}
	if output := j.logs.complaints(installed); len(output) > 0 {
		return fmt.Errorf("the logs have %d lines that none should have, the first: %s", len(output), output[0])
	}
	return nil
}

// table writes what was shown.
func (j *journey) table() {
	fmt.Fprintf(j.Out, "\n| step | result | time |\n|---|---|---|\n")
	for _, r := range j.steps {
		found := r.found
		if r.err != nil {
			first, _, _ := strings.Cut(r.err.Error(), "\n")
			found = "FAILED: " + first
		}
		fmt.Fprintf(j.Out, "| %s | %s | %.1f s |\n", r.name, strings.ReplaceAll(found, "|", "/"), r.took.Seconds())
	}
	lines, files := j.logs.count()
	fmt.Fprintf(j.Out, "\n%d of %d steps, %s; %d lines of %d logs read\n", len(j.steps), len(steps), time.Since(j.began).Round(time.Second), lines, files)
}

// evidence stores what can explain the failure.
func (j *journey) evidence() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := j.run(ctx, "kubectl get nodes,pods,deployments,daemonsets -A -o wide; kubectl describe node; kubectl get events -A --sort-by=.lastTimestamp | tail -n 60; nvsentinel status || true; nvsentinel why "+nodeName+" || true")
	output := os.WriteFile(filepath.Join(j.Work, "state.txt"), []byte(out), 0o644)
	copied := os.CopyFS(filepath.Join(j.Work, "pods"), os.DirFS("/var/log/pods"))
	j.log("the state, the logs of pods and of the node's parts are in %s", j.Work)
	return errors.Join(err, output, copied)
}
