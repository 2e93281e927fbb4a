// Package kubernetesobjectmonitor reports what users' CEL policies find in
// Kubernetes objects.
package kubernetesobjectmonitor

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/internal/checkpoint"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/internal/watch"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/eventrecorder"
	"github.com/nvidia/nvsentinel/internal/kube"
	"github.com/nvidia/nvsentinel/internal/report"
)

// refusedReason: policies of kubernetes-object-monitor are invalid, so the previous ones stay active. Action: correct
// the policies that the Event names.
const refusedReason = "PoliciesRefused"

// purpose is the first sentence of the help.
const purpose = "kubernetes-object-monitor evaluates CEL policies against Kubernetes objects and reports matches as health events."

// Controller is what nvsentinel-controller runs.
func Controller() daemon.Controller {
	c := daemon.NewController(machine.Agent, purpose, defaultConfig, build)
	c.Commands = map[string]func(args []string) int{
		"check": func(args []string) int {
			return runCheck(args, streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, clock.RealClock{}.Now())
		},
		"rbac": func(args []string) int { return runRights(args, os.Stdout, os.Stderr) },
	}
	return c
}

func build(_ context.Context, d *daemon.Daemon, cfg Config) error {
	policies := &watch.Policies{Path: cfg.Policies, Publishers: cfg.Publishers, Strategy: cfg.Strategy, Clock: d.Clock, Log: d.Log}
	if err := policies.Load(); err != nil {
		return err
	}
	client, err := kube.Connect(cfg.Kube, machine.Agent)
	if err != nil {
		return err
	}
	conn, err := report.Dial(cfg.Socket, cfg.TokenPath)
	if err != nil {
		return err
	}
	d.OnStop("connector", func(context.Context) error { return conn.Close() })
	state := &checkpoint.Checkpoint{Client: client.Clientset, Namespace: cfg.Lease.Namespace, Name: cfg.State, Clock: d.Clock, Log: d.Log}
	metrics := watch.NewMetrics(d.Registry, state.Size)
	policies.Failed, policies.Refused = metrics.ReloadFailed, refusal(eventrecorder.Start(d, client), cfg.Lease.Namespace, cfg.State)
	publisher := &report.Publisher{
		Name: machine.Agent, Outbox: state, Connector: metrics.Count(protos.NewPlatformConnectorClient(conn)), Clock: d.Clock,
		Log: d.Log, Metrics: metrics.Publisher,
	}
	monitor := &watch.Monitor{
		Config: client.Config, Policies: policies, Checkpoint: state, Publisher: publisher, Strategy: cfg.Strategy,
		Resync: cfg.Resync, Workers: cfg.Workers, Clock: d.Clock, Log: d.Log, Metrics: metrics,
	}
	d.Ready("connector", publisher.Ready)
	d.Ready("state", state.Ready)
	d.Ready("objects", monitor.Ready)
	d.Go("policies", policies.Run)
	cfg.Lease.Lead(d, cfg.Kube.Kubeconfig, "policies", monitor.Run)
	return nil
}

// refusal returns a function that reports rejected policies with an Event about the state's
// ConfigMap, the one object of the monitor whose name it knows.
func refusal(events *eventrecorder.Recorder, namespace, name string) func(context.Context, error) {
	state := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}
	return func(_ context.Context, problem error) {
		events.Event(state, corev1.EventTypeWarning, refusedReason, problem.Error())
	}
}
