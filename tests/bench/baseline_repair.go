package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// repairBaseline is the order of a manual repair: a durable write of a record's
// size, then the creation of the maintenance object, which is deleted again.
func repairBaseline(ctx context.Context, dsn string, client dynamic.Interface, n int) (waits []time.Duration, err error) {
	writer, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, writer.Close(ctx)) }()
	if _, err := writer.Exec(ctx, "CREATE TABLE floor_repair (doc JSONB NOT NULL); INSERT INTO floor_repair VALUES ('{}')"); err != nil {
		return nil, err
	}
	for i := range n {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "janitor.dgxc.nvidia.com/v1alpha1", "kind": "RebootNode",
			"metadata": map[string]any{"name": fmt.Sprintf("floor-%d", i)},
			"spec":     map[string]any{"nodeName": "floor"},
		}}
		began := time.Now()
		_, err := writer.Exec(ctx, "UPDATE floor_repair SET doc = jsonb_build_object('text', $1::text)", strings.Repeat("x", recordBytes))
		if err == nil {
			_, err = client.Resource(rebootNodes).Create(ctx, object, metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
		if err := client.Resource(rebootNodes).Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
	}
	return waits, nil
}
