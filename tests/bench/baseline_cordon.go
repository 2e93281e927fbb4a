package bench

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// cordonBaseline is a manual cordon: a durable insert of a record's size with a
// notification, hearing it on another connection, and the patch of the node.
func cordonBaseline(ctx context.Context, dsn string, client kubernetes.Interface, nodes []string, n int) (waits []time.Duration, err error) {
	writer, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, writer.Close(ctx)) }()
	listener, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, listener.Close(ctx)) }()
	if _, err := writer.Exec(ctx, "CREATE TABLE floor_cordon (id BIGSERIAL PRIMARY KEY, doc JSONB NOT NULL)"); err != nil {
		return nil, err
	}
	if _, err := listener.Exec(ctx, "LISTEN floor"); err != nil {
		return nil, err
	}
	for i := range n {
		began := time.Now()
		_, err := writer.Exec(ctx, "WITH row AS (INSERT INTO floor_cordon (doc) VALUES (jsonb_build_object('text', $1::text))) SELECT pg_notify('floor', '')",
			strings.Repeat("x", recordBytes))
		if err == nil {
			_, err = listener.WaitForNotification(ctx)
		}
		if err == nil {
			err = patchNode(ctx, client, nodes[i%len(nodes)], cordonPatch)
		}
		if err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
		if err := patchNode(ctx, client, nodes[i%len(nodes)], undoPatch); err != nil {
			return nil, err
		}
	}
	return waits, nil
}

func patchNode(ctx context.Context, client kubernetes.Interface, node, patch string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
