package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/forwarder"
)

// TestDisconnectedConnectorIsReported: no gateway is there. The Node reports that a fatal fault waits,
// events are accepted all the same, and when a gateway comes the Node reports that too.
func TestDisconnectedConnectorIsReported(t *testing.T) {
	testkit.Long(t, "internal/delivery TestNodeReportsPendingEvents does it in virtual time")
	a := newAvenue(t)
	a.connector()
	a.send(event("a", 1))
	await(t, func() (bool, string) {
		got := a.conditions()["EventDelivery"]
		return strings.HasPrefix(got, "True EventDeliveryIsNotHealthy: events have been pending") && strings.Contains(got, "including a fatal fault"), got
	})
	a.send(event("a", 2))
	a.gateway(0)
	awaitStored(t, a.records(), 2)
	await(t, func() (bool, string) {
		got := a.conditions()["EventDelivery"]
		return got == "False EventDeliveryIsHealthy: "+healthyText, got
	})
	await(t, func() (bool, string) {
		list, err := a.cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + forwarder.EventsWaiting})
		return err == nil && len(list.Items) == 1 && list.Items[0].InvolvedObject.Name == nodeName, "no Event"
	})
}
