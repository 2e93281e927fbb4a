package bench

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// watch follows nodes, the users' pods and maintenance objects for as long as ctx
// lives, and writes into the diary what becomes of them.
func (s *stage) watch(ctx context.Context) error {
	client := s.fleet.Cluster.Client()
	nodes := informers.NewSharedInformerFactory(client, 0)
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(fleet.UserNamespace))
	repairs := dynamicinformer.NewDynamicSharedInformerFactory(s.fleet.Cluster.Dynamic(), 0)
	for _, x := range []struct {
		informer cache.SharedIndexInformer
		note     func(object any, deleted bool)
	}{
		{nodes.Core().V1().Nodes().Informer(), s.ofNode},
		{pods.Core().V1().Pods().Informer(), s.ofPod},
		{repairs.ForResource(rebootNodes).Informer(), s.ofRepair},
	} {
		_, err := x.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { x.note(object, false) },
			UpdateFunc: func(_, object any) { x.note(object, false) },
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				x.note(object, true)
			},
		})
		if err != nil {
			return fmt.Errorf("following the cluster: %w", err)
		}
		go x.informer.Run(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), x.informer.HasSynced) {
			return fmt.Errorf("following the cluster: %w", ctx.Err())
		}
	}
	return nil
}

// ofNode notes when a node becomes "cordoned" or "free"; each new state ends the other. The
// condition of the figures' check is "well", and later "shown".
func (s *stage) ofNode(object any, _ bool) {
	now := time.Now()
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	for _, c := range node.Status.Conditions {
		if fact, ok := map[corev1.ConditionStatus]string{corev1.ConditionFalse: "well ", corev1.ConditionTrue: "shown "}[c.Status]; ok && c.Type == checkName {
			s.diary.note(fact+node.Name, now)
		}
	}
	session := node.Annotations[nodemark.SessionAnnotation] != ""
	switch {
	case node.Spec.Unschedulable && session:
		s.diary.forget("free " + node.Name)
		s.diary.note("cordoned "+node.Name, now)
	case !node.Spec.Unschedulable && !session:
		s.diary.forget("cordoned " + node.Name)
		s.diary.note("free "+node.Name, now)
	}
}

func (s *stage) ofPod(object any, deleted bool) {
	now := time.Now()
	pod, ok := object.(*corev1.Pod)
	switch {
	case !ok:
	case deleted:
		s.diary.note("gone "+pod.Name, now)
	case pod.Status.Phase == corev1.PodRunning:
		s.diary.note("running "+pod.Name, now)
	}
}

func (s *stage) ofRepair(object any, deleted bool) {
	now := time.Now()
	if repair, ok := object.(*unstructured.Unstructured); ok && !deleted {
		name, _, _ := unstructured.NestedString(repair.Object, "spec", "nodeName")
		s.diary.note("repair "+name, now)
	}
}
