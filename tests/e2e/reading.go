package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gateways is the label of the gateways' pods.
const gateways = "app.kubernetes.io/name=platform-connectors-gateway"

// helmTest runs the chart's own test.
func (j *journey) helmTest(ctx context.Context) (string, error) {
	if err := j.upgrade(ctx, "watch"); err != nil {
		return "", err
	}
	out, err := j.run(ctx, "helm test nvsentinel -n "+namespace+" --logs")
	if err == nil && !strings.Contains(out, "Succeeded") {
		err = fmt.Errorf("helm test says %s", out)
	}
	return "Succeeded", err
}

// reading reads the store with nothing but a kubeconfig: through a port that is
// forwarded into a gateway's pod, while these pods go, without the right, with it, and
// with a gateway that lets nobody read.
func (j *journey) reading(ctx context.Context) (string, error) {
	viewer, err := j.cluster.UserKubeconfig("viewer", "viewer", "viewers")
	if err != nil {
		return "", err
	}
	asViewer := "nvsentinel status --kubeconfig " + viewer
	if _, err := j.waitForOutput(ctx, time.Minute, asViewer, "requires permission to list pods"); err != nil {
		return "", err
	}
	// Both pods go, one after the other, while somebody reads again and again.
	reads, failed := 0, 0
	gone := make(chan error, 1)
	go func() { gone <- j.replaceGateways(ctx) }()
	for done := false; !done; reads++ {
		select {
		case err = <-gone:
			done = true
		default:
		}
		if _, err := j.run(ctx, "nvsentinel status"); err != nil {
			failed++
		}
	}
	if err == nil && failed > 2 { // one for each pod, whose port was being read when it went
		err = fmt.Errorf("%d of %d reads failed while the gateways' pods went", failed, reads)
	}
	if err != nil {
		return "", err
	}
	if _, err := j.waitForOutput(ctx, time.Minute, "nvsentinel why "+nodeName, "DryRun"); err != nil {
		return "", err
	}
	const let = `--set viewers[0].kind=Group,viewers[0].name=viewers,viewers[0].apiGroup=rbac.authorization.k8s.io`
	if err := j.upgrade(ctx, "watch", let, `--set-string platformConnectorsGateway.inspectAddress=`); err != nil {
		return "", err
	}
	if _, err := j.waitForOutput(ctx, time.Minute, asViewer, "does not serve its store"); err != nil {
		return "", err
	}
	if err := j.upgrade(ctx, "watch", let); err != nil {
		return "", err
	}
	_, err = j.waitForOutput(ctx, time.Minute, asViewer, "would have been quarantined")
	return fmt.Sprintf("%d reads while both gateways' pods went, %d failed; refused without the right and with inspectAddress off, read with viewers", reads, failed), err
}

// replaceGateways deletes the gateways' pods, one at a time, and waits for others.
func (j *journey) replaceGateways(ctx context.Context) error {
	list, err := j.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: gateways})
	if err == nil && len(list.Items) < 2 {
		err = fmt.Errorf("there are %d gateways, want 2", len(list.Items))
	}
	for _, p := range list.Items {
		err = errors.Join(err, j.client.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
		_, wait := j.run(ctx, "kubectl -n "+namespace+" rollout status deployment/platform-connectors-gateway --timeout 2m")
		err = errors.Join(err, wait)
	}
	return err
}
