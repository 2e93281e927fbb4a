package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestDecide(t *testing.T) {
	now := testkit.Start
	condition := func(status corev1.ConditionStatus, message string, age time.Duration) *corev1.NodeCondition {
		return &corev1.NodeCondition{Status: status, Message: message, LastHeartbeatTime: metav1.NewTime(now.Add(-age))}
	}
	since := func(age time.Duration) Backlog {
		return Backlog{Since: now.Add(-age), Fatal: true, Problem: "no connection"}
	}
	const reported = "events have been pending on this node since 2026-01-02T03:03:05Z, including a fatal fault: no connection"
	for name, tc := range map[string]struct {
		backlog Backlog
		shown   *corev1.NodeCondition
		reason  DeliveryReason
		status  corev1.ConditionStatus
	}{
		"nothing waits":                     {Backlog{}, nil, Delivered, corev1.ConditionFalse},
		"nothing waits any more":            {Backlog{}, condition("True", reported, 0), Recovered, corev1.ConditionFalse},
		"nothing waited before":             {Backlog{}, condition("False", "", 0), Delivered, corev1.ConditionFalse},
		"not for long":                      {since(LateDelivery - 1), nil, Delivered, corev1.ConditionFalse},
		"not for long, in a new life":       {since(LateDelivery - 1), condition("True", reported, 0), Delivered, corev1.ConditionFalse},
		"the next, after what waited":       {Backlog{Since: now, Delivered: true}, condition("True", reported, 0), Recovered, corev1.ConditionFalse},
		"for long":                          {since(LateDelivery), nil, Waits, corev1.ConditionTrue},
		"for long, and it was well":         {since(time.Minute), condition("False", "", 0), Waits, corev1.ConditionTrue},
		"for long, and that is told":        {since(time.Minute), condition("True", reported, time.Hour), AlreadyReported, corev1.ConditionTrue},
		"for another reason, as of now":     {since(time.Minute), condition("True", "else", textEvery-1), AlreadyReported, corev1.ConditionTrue},
		"for another reason, as of a while": {since(time.Minute), condition("True", "else", textEvery), Another, corev1.ConditionTrue},
		"without an answer":                 {Backlog{Since: now.Add(-time.Hour)}, nil, Waits, corev1.ConditionTrue},
		"with a clock that was reset since": {since(-time.Hour), nil, Delivered, corev1.ConditionFalse},
	} {
		c, reason := DecideDelivery(tc.backlog, tc.shown, now)
		if reason != tc.reason || c.Status != tc.status || c.Type != "EventDelivery" {
			t.Errorf("%s: %s, %+v", name, reason, c)
		}
	}
	c, _ := DecideDelivery(since(time.Minute), nil, now)
	if c.Message != reported || c.Reason != "EventDeliveryIsNotHealthy" {
		t.Errorf("it says %q, %s", c.Message, c.Reason)
	}
	c, _ = DecideDelivery(Backlog{Since: now.Add(-time.Minute), Problem: "x" + strings.Repeat("ä", 5000)}, nil, now)
	if !utf8.ValidString(c.Message) {
		t.Errorf("a long problem is cut within a character: %q", c.Message[len(c.Message)-8:])
	}
	c, _ = DecideDelivery(Backlog{Since: now.Add(-time.Minute), Problem: strings.Repeat("x", 5000)}, nil, now)
	if len(c.Message) > 1024 || strings.Contains(c.Message, "fatal") {
		t.Errorf("a long problem makes a text of %d bytes", len(c.Message))
	}
	if c, _ = DecideDelivery(Backlog{}, condition("True", reported, 0), now); c.Reason != "EventDeliveryIsHealthy" || c.Message != "No Health Failures" {
		t.Errorf("its end says %+v", c)
	}
}
