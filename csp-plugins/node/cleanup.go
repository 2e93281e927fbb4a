package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvidia/nvsentinel/csp-plugins/node/decision"
	"github.com/nvidia/nvsentinel/internal/retry"
)

// cleanupInterval is the time between two searches for Jobs that did not start. The janitor
// may not ask again, for example because the quarantine session has ended.
const cleanupInterval = 15 * time.Second

// Clean deletes Jobs that did not start in time, until ctx ends.
func (p *Plugin) Clean(ctx context.Context) error {
	retry.Every(ctx, p.Clock, cleanupInterval, func() {
		if err := p.clean(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("cleanup of reboot Jobs failed, retrying", "error", err)
		}
	})
	return nil
}

// clean is one search. A Job that cannot be read or deleted does not keep the others.
func (p *Plugin) clean(ctx context.Context) (problems error) {
	for page := (metav1.ListOptions{LabelSelector: labels.FormatLabels(jobLabels()), Limit: 500}); ; {
		jobs, err := p.Client.BatchV1().Jobs(p.Namespace).List(ctx, page)
		if err != nil {
			return errors.Join(problems, fmt.Errorf("listing reboot jobs: %w", err))
		}
		for i := range jobs.Items {
			problems = errors.Join(problems, p.cleanOne(ctx, &jobs.Items[i]))
		}
		if page.Continue = jobs.Continue; page.Continue == "" {
			return problems
		}
	}
}

// cleanOne deletes a Job if that follows from what is read about it.
func (p *Plugin) cleanOne(ctx context.Context, job *batchv1.Job) error {
	o, known := orderOf(job)
	if !known || ended(job) || p.Clock.Now().Before(o.StartBy) {
		return nil
	}
	r := request{key: o.Key, node: o.Node, job: job.Name}
	f, err := p.observe(ctx, r)
	if err != nil {
		return err
	}
	if v := decision.Next(f.view(r), p.policy(), p.Clock.Now()); v.Step == decision.Delete {
		err = p.delete(ctx, f.job)
	}
	if apierrors.IsConflict(err) {
		return nil // the next search finds out
	}
	return err
}

// delete deletes the Job that was read, and no other: neither one of the same name, nor this
// one if anything about it has changed.
func (p *Plugin) delete(ctx context.Context, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := p.Client.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting job %s: %w", job.Name, err)
	}
	p.Log.Warn("reboot Job deleted, the kubelet did not start it in time", "job", job.Name, "node", job.Spec.Template.Spec.NodeName)
	return nil
}
