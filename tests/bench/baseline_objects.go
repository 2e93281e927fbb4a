package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// objectsBaseline is the least that a change of an object costs until it may be reported: a
// watch event and the write of one object of the cluster.
func objectsBaseline(ctx context.Context, client kubernetes.Interface, node string, times int) ([]time.Duration, error) {
	watch, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	maps := client.CoreV1().ConfigMaps("default")
	state, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "floor"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	for i := range times {
		value := fmt.Sprintf("floor-%d", i)
		if err := setFault(ctx, client, "Node", node, value); err != nil {
			return nil, err
		}
		began := time.Now()
		for seen := false; !seen; {
			event, open := <-watch.ResultChan()
			if !open {
				return nil, errors.New("the watch ended")
			}
			object, ok := event.Object.(*corev1.Node)
			seen = ok && object.Labels[faultLabel] == value
		}
		state.BinaryData = map[string][]byte{"state": make([]byte, 500+i%2)}
		if state, err = maps.Update(ctx, state, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
	}
	return waits, setFault(ctx, client, "Node", node, "")
}
