package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/csp-plugins/node/decision"
	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/retry"
)

const (
	// poll is how often a call reads the Job that it waits for.
	poll = 500 * time.Millisecond
	// askAgain is after which time the janitor repeats a request whose Job has not started.
	askAgain = 5 * time.Second
	// grace is the time between the end of StartTimeout and the deletion of the Job.
	grace = 10 * time.Second
	// answerMargin is what a call leaves of its time for the answer.
	answerMargin = time.Second
)

// Plugin reboots nodes through Jobs.
type Plugin struct {
	v1.UnimplementedCSPPluginServiceServer
	Config
	Client  kubernetes.Interface
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics
}

// Metrics of the plugin.
type Metrics struct{ answers *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvsentinel_csp_plugin_node_answers_total", Help: "Answers to reboot requests, by the reason of the decision.",
	}, []string{"reason"})}
	r.MustRegister(m.answers)
	return m
}

// request is one reboot request.
type request struct {
	key, node string
	force     bool
	job       string
}

// SendRebootSignal creates the Job of a key, once, and answers when its program has started.
func (p *Plugin) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if q.GetNodeName() == "" {
		return nil, status.Error(codes.InvalidArgument, "node_name is empty")
	}
	r := request{key: q.GetIdempotencyKey(), node: q.GetNodeName(), force: q.GetForce()}
	r.job = jobName(digest(r.key))
	if r.key == "" {
		r.job = jobName(digest(uuid.NewString()))
	}
	id, err := p.reboot(ctx, r)
	return &v1.SendRebootSignalResponse{RequestId: id}, err
}

// SendTerminateSignal is not possible without a provider.
func (p *Plugin) SendTerminateSignal(context.Context, *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	return nil, status.Error(codes.Unimplemented, "csp-plugin-node reboots machines and cannot replace them: set janitor.terminateNodeController.cspPluginHost to the plugin of a provider")
}

// reboot decides and acts until the request has an answer.
func (p *Plugin) reboot(ctx context.Context, r request) (id string, err error) {
	until := p.Clock.Now().Add(p.AnswerTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-answerMargin).Before(until) {
		until = deadline.Add(-answerMargin)
	}
	for created := false; ; {
		f, err := p.observe(ctx, r)
		if err != nil {
			return "", unread(err, created)
		}
		v := decision.Next(f.view(r), p.policy(), p.Clock.Now())
		switch v.Step {
		case decision.Create:
			created = true
			if err := p.create(ctx, r, f.node); err != nil {
				return "", err
			}
		case decision.Wait:
			if p.Clock.Now().Add(v.Again).After(until) {
				return "", p.answer(r, f, v)
			}
			retry.Sleep(ctx, p.Clock, v.Again)
		case decision.Delete:
			if err := p.delete(ctx, f.job); apierrors.IsConflict(err) {
				continue // perhaps it has started
			} else if err != nil {
				return "", unread(err, true)
			}
			return "", p.answer(r, f, v)
		case decision.Accept, decision.Report, decision.Refuse, decision.Retry:
			return requestID(f), p.answer(r, f, v)
		}
	}
}

func (p *Plugin) policy() decision.Policy {
	return decision.Policy{Grace: min(grace, p.StartTimeout), Poll: poll}
}

// unread is the answer if the API server did not respond. Nothing was done unless this call
// has created the Job.
func unread(err error, created bool) error {
	if created {
		return plugin.Pending(askAgain, err.Error())
	}
	return status.Error(codes.Aborted, err.Error())
}

// answer is the answer to the janitor that follows from a decision.
func (p *Plugin) answer(r request, f facts, v decision.Verdict) error {
	p.Metrics.answers.WithLabelValues(string(v.Reason)).Inc()
	p.Log.Info("reboot request answered", "node", r.node, "key", r.key, "job", r.job, "step", v.Step, "reason", v.Reason)
	job := p.Namespace + "/" + r.job
	switch v.Reason { //nolint:exhaustive // the others are accepted
	case decision.NodeNotFound:
		return status.Errorf(codes.FailedPrecondition, "node %q does not exist", r.node)
	case decision.BootIDUnknown:
		return status.Errorf(codes.Aborted, "node %q reports no boot ID", r.node)
	case decision.NameTaken:
		return status.Errorf(codes.FailedPrecondition, "another client created Job %s: delete it", job)
	case decision.KeyOfAnotherNode:
		return status.Errorf(codes.InvalidArgument, "the key was already used to reboot another node with Job %s", job)
	case decision.NotStarted, decision.JobRemoved:
		return plugin.Pending(askAgain, fmt.Sprintf("the kubelet of node %q has not started Job %s yet: %s", r.node, job, obstacle(f.pod)))
	case decision.StartTimeUp:
		return plugin.NodeUnresponsive(fmt.Sprintf("the kubelet of node %q did not start Job %s within %s, and the Job was deleted: %s", r.node, job, p.StartTimeout, obstacle(f.pod)))
	case decision.Rejected:
		return plugin.NodeUnresponsive(fmt.Sprintf("the kubelet of node %q refused the pod of Job %s: %s", r.node, job, obstacle(f.pod)))
	case decision.PodNotCreated:
		return status.Errorf(codes.FailedPrecondition, "Job %s had no pod after %s and was deleted: read the Events of Jobs in namespace %s, which must admit privileged pods", job, p.StartTimeout, p.Namespace)
	case decision.StartedLate:
		return status.Errorf(codes.FailedPrecondition, "Job %s started after its time by the clock of node %q and did nothing: check the clocks", job, r.node)
	case decision.ProgramFailed:
		return status.Errorf(codes.FailedPrecondition, "Job %s could not reboot node %q, read the log of its pod", job, r.node)
	}
	return nil
}

// create creates the Job. A Job of the same name that another call has created meanwhile is
// read by the next pass.
func (p *Plugin) create(ctx context.Context, r request, node *corev1.Node) error {
	// Times are stored in seconds, so that of the program is rounded up.
	startBy := p.Clock.Now().Add(p.StartTimeout + time.Second - 1).Truncate(time.Second)
	o := order.Order{
		Key: r.key, Node: r.node, BootID: node.Status.NodeInfo.BootID, Session: nodemark.Read(node).Session,
		StartBy: startBy, SystemdTimeout: p.SystemdTimeout, Force: r.force,
	}
	_, err := p.Client.BatchV1().Jobs(p.Namespace).Create(ctx, p.job(r.job, o, node), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return status.Errorf(codes.FailedPrecondition, "the API server rejected Job %s/%s: %v", p.Namespace, r.job, err)
	case err != nil:
		return plugin.Pending(askAgain, fmt.Sprintf("creating job %s/%s: %v", p.Namespace, r.job, err))
	}
	p.Log.Info("reboot Job created", "node", r.node, "key", r.key, "job", r.job, "boot", o.BootID, "startBy", o.StartBy)
	return nil
}

// requestSeparator stands between the parts of a request ID.
const requestSeparator = "|"

// requestID contains the boot that the reboot ends, so that it is known without the Job.
func requestID(f facts) string {
	if f.job == nil {
		return ""
	}
	o, _ := orderOf(f.job)
	return strings.Join([]string{f.job.Name, o.BootID}, requestSeparator)
}

// IsNodeReady reports whether the Node is Ready under another boot than at the request.
func (p *Plugin) IsNodeReady(ctx context.Context, q *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	if q.GetNodeName() == "" {
		return nil, status.Error(codes.InvalidArgument, "node_name is empty")
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, q.GetNodeName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// Not NotFound: the absence of the Node proves nothing about its machine.
		return nil, status.Errorf(codes.FailedPrecondition, "node %q does not exist", q.GetNodeName())
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "reading node %q: %v", q.GetNodeName(), err)
	}
	_, before, _ := strings.Cut(q.GetRequestId(), requestSeparator)
	return &v1.IsNodeReadyResponse{IsReady: nodeReady(node) && node.Status.NodeInfo.BootID != before}, nil
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
