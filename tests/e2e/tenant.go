package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// team is a tenant's namespace, in which mallory has the role edit.
	team    = "team-a"
	mallory = "system:serviceaccount:" + team + ":mallory"
)

// boom is a Pod whose command is what the policy NVMLError looks for. It asks for no GPU
// and for no scheduler.
const boom = `apiVersion: v1
kind: Pod
metadata: {name: boom, namespace: ` + team + `}
spec:
  nodeName: ` + nodeName + `
  automountServiceAccountToken: false
  containers:
    - name: c
      image: ` + registry + `/pause:v1
      command: ["nvidia-container-cli: nvml error"]
      resources: {limits: {nvidia.com/gpu: "0"}}
`

// tenant has a tenant put words into the kubelet's own Event, which the kubelet and the
// container runtime of this node write, and root on the node write marks of the suite as
// the kubelet. Nothing follows.
func (j *journey) tenant(ctx context.Context) (string, error) {
	if err := j.write("boom.yaml", boom); err != nil {
		return "", err
	}
	for _, command := range []string{
		"kubectl create namespace " + team,
		"kubectl create serviceaccount mallory -n " + team,
		"kubectl create rolebinding mallory -n " + team + " --clusterrole=edit --serviceaccount=" + team + ":mallory",
	} {
		if _, err := j.run(ctx, command); err != nil {
			return "", err
		}
	}
	err := until(ctx, time.Minute, func(ctx context.Context) error { // roles take effect a moment later
		_, err := j.run(ctx, "kubectl apply --as="+mallory+" -f boom.yaml")
		return err
	})
	if err != nil {
		return "", err
	}
	note, err := j.kubeletsNote(ctx)
	if err != nil {
		return "", err
	}
	if err := j.forged(ctx); err != nil {
		return "", err
	}
	if err := j.expectIdle(ctx, 15*time.Second); err != nil {
		return "", fmt.Errorf("after the kubelet's Event %q: %w", note, err)
	}
	_, err = j.run(ctx, "kubectl delete namespace "+team+" --wait")
	return fmt.Sprintf("the kubelet wrote %q, and nothing is on the node; marks of the suite are refused to it", note), err
}

// kubeletsNote waits for the kubelet's Event with the tenant's words.
func (j *journey) kubeletsNote(ctx context.Context) (note string, err error) {
	err = until(ctx, 2*time.Minute, func(ctx context.Context) error {
		list, err := j.client.CoreV1().Events(team).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=boom,reason=Failed"})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, "nvidia-container-cli") && strings.Contains(e.Message, "nvml error") {
				note = e.Message
				return nil
			}
		}
		return fmt.Errorf("none of %d Events of the kubelet has the words of the pod's command", len(list.Items))
	})
	return note, err
}

// forged writes marks of the suite as the kubelet of the node, all of which are refused.
func (j *journey) forged(ctx context.Context) error {
	asKubelet := "kubectl --kubeconfig=" + j.machine.kubeconfig + " "
	for _, command := range []string{
		"annotate node " + nodeName + " dgxc.nvidia.com/nvsentinel-session=forged",
		"annotate node " + nodeName + " dgxc.nvidia.com/nvsentinel-repair=forged",
		"label node " + nodeName + " nvsentinel.dgxc.nvidia.com/managed=false",
	} {
		out, err := j.run(ctx, asKubelet+command)
		if err == nil || !strings.Contains(err.Error()+out, "a kubelet may not write") {
			return fmt.Errorf("the kubelet's %q is not refused: %s, %w", command, out, err)
		}
	}
	return nil
}

// expectIdle looks for so long that nothing is done to the node.
func (j *journey) expectIdle(ctx context.Context, long time.Duration) error {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
		n, err := j.node(ctx)
		if err != nil {
			return err
		}
		if !untouched(n) || faulty(n) {
			return errors.New("the node was touched")
		}
	}
	return nil
}
