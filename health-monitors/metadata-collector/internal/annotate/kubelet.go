package annotate

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nvidia/nvsentinel/health-monitors/metadata-collector/allotment"
)

const (
	// answerBytes is what the kubelet's own client allows.
	answerBytes = 16 << 20
	// patience bounds one question.
	patience = 10 * time.Second
)

// Kubelet is a connection to the PodResources socket of the node's kubelet, which knows
// which devices it gave to which pods.
type Kubelet struct {
	conn   *grpc.ClientConn
	lister podresources.PodResourcesListerClient
}

// Dial prepares to ask at a socket, a path; it does not connect yet.
func Dial(socket string) (*Kubelet, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytes)))
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the kubelet: %w", err)
	}
	return &Kubelet{conn, podresources.NewPodResourcesListerClient(conn)}, nil
}

// Held says what the kubelet gave to the pods that run on the node.
func (k *Kubelet) Held(ctx context.Context) (allotment.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := k.lister.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet for devices of pods: %w", err)
	}
	held := allotment.Held{}
	for _, p := range answer.GetPodResources() {
		pod := allotment.Pod{Namespace: p.GetNamespace(), Name: p.GetName()}
		held.Give(pod, "", nil)
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				held.Give(pod, d.GetResourceName(), d.GetDeviceIds())
			}
		}
	}
	return held, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.conn.Close() }
