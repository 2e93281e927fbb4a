// Package gpureset carries out GPUReset objects: besides object and Node it reads the GPU
// services' pods and the Job, and asks janitor/reset what is next.
//
// Everything is read again before each step, and the Job has the object's name: so
// nothing is done twice, whenever the process dies.
package gpureset

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
	"github.com/nvidia/nvsentinel/janitor/repair"
	"github.com/nvidia/nvsentinel/janitor/reset"
)

// steps bounds a pass; the longest way has ten.
const steps = 12

// Deps are what the controller works with.
type Deps struct {
	reconciler.Deps
	// Resets are the metrics that the kind has of its own.
	Resets *Metrics
	// Services are the GPU services of a node, Tool what the Job runs.
	Services Services
	Tool     Tool
}

// facts are what is read besides object and Node.
type facts struct {
	pods []corev1.Pod // of the GPU services, on the node
	job  *batchv1.Job // nil is certain absence, or that there can be none
}

// pass is one look at one object and what it depends on.
type pass = reconciler.Pass[*v1alpha1.GPUReset, facts]

// Reconciler reconciles GPUResets.
type Reconciler struct {
	reconciler.Frame[*v1alpha1.GPUReset, facts]
	Resets   *Metrics
	Services Services
	Tool     Tool
	policy   reset.Policy
}

// New makes the controller.
func New(p reset.Policy, d Deps) *Reconciler {
	c := &Reconciler{Resets: d.Resets, Services: d.Services, Tool: d.Tool, policy: p}
	c.Frame = reconciler.NewFrame(d.Deps, reconciler.Traits[*v1alpha1.GPUReset, facts]{
		Name: Kind, Action: action, MaxSteps: steps, Fresh: true,
		Object:    func() *v1alpha1.GPUReset { return &v1alpha1.GPUReset{} },
		List:      func() client.ObjectList { return &v1alpha1.GPUResetList{} },
		NodeOf:    func(object *v1alpha1.GPUReset) string { return object.Spec.NodeName },
		Completed: func(object *v1alpha1.GPUReset) bool { return object.Status.CompletionTime != nil },
		Read:      c.read,
		Decide: func(p *pass, now time.Time) repair.Verdict {
			return reset.Next(c.view(p), c.policy, now)
		},
		Steps: map[repair.Step]func(context.Context, *pass, repair.Verdict) error{
			reset.Note: c.note, reset.TearDown: c.tearDown, reset.NoteJob: c.noteJob, reset.CreateJob: c.createJob,
			reset.SeeJob: c.seeJob, reset.Conclude: c.conclude, reset.Restore: c.restore, reset.Complete: c.complete,
		},
		// The steps that touch the node.
		PausedSteps: []repair.Step{reset.Note, reset.TearDown, reset.NoteJob, reset.CreateJob},
		Begin:       begin, Waiting: waiting, Changed: byOthers, NodeFacts: c.nodeFacts,
		Watch: watch, Besides: []client.Object{&batchv1.Job{}, &corev1.Pod{}},
	})
	return c
}

// read adds the pods of the GPU services and the Job.
func (c *Reconciler) read(ctx context.Context, p *pass) (err error) {
	if p.Object.Status.CompletionTime != nil {
		return nil
	}
	if p.Node != nil {
		if p.Facts.pods, err = c.Services.pods(ctx, c.Nodes, p.Node.Name); err != nil {
			return err
		}
	}
	p.Facts.job, err = c.readJob(ctx, p.Object)
	return err
}

// view is what Next sees.
func (c *Reconciler) view(p *pass) reset.View {
	v := reset.View{Object: objectFacts(p.Object), Job: jobFacts(p.Object, p.Facts.job), Node: reset.Node{Node: c.NodeOfPass(p)}}
	if p.Node != nil {
		v.Node.Down = downOf(p.Node)
		v.Node.Services = c.Services.facts(p.Node, p.Facts.pods)
	}
	return v
}
