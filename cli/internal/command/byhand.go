package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvidia/nvsentinel/internal/kube"
)

// What a person asks for by an annotation of a Node is written here.

// userName is the caller's name, as the API server knows it.
func userName(ctx context.Context, cluster *kube.Client) (string, error) {
	me, err := cluster.Clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking the API server for your user name: %w", err)
	}
	return me.Status.UserInfo.Username, nil
}

// annotate writes one annotation of a Node; nil removes it.
func annotate(ctx context.Context, cluster *kube.Client, node, key string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = cluster.Clientset.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// askEvery is how often is looked for what is waited for.
const askEvery = 200 * time.Millisecond

// until asks until cond holds or ctx ends; the last problem is told.
func until(ctx context.Context, cond func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		ok, err := cond(ctx)
		if err != nil {
			last = err
		}
		return ok, nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), last)
	}
	return nil
}
