package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestRefusedWatches: a watch that is refused counts until it is not refused again for as
// long as an informer may wait; other errors, and other kinds, do not.
func TestRefusedWatches(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"})
	r := NewRefusals(clock, &coordinationv1.Lease{}, raw)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no right"))
	r.note("*v1.Lease", errors.New("connection refused"))
	r.note("*v1.Node", forbidden)
	if why := r.Why(); why != "" {
		t.Errorf("it says %q", why)
	}
	r.note("*v1.Lease", forbidden)
	r.note(raw.GroupVersionKind().String(), apierrors.NewUnauthorized("expired"))
	if why := r.Why(); !strings.Contains(why, "Lease cannot be watched") || !strings.Contains(why, "no right, Thing cannot be watched") || !strings.HasSuffix(why, "expired") {
		t.Errorf("it says %q", why)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	r.note("*v1.Lease", forbidden)
	clock.SetTime(clock.Now().Add(refusalLasts - time.Second))
	if why := r.Why(); !strings.Contains(why, "Lease can") || strings.Contains(why, "Thing") {
		t.Errorf("a minute later it says %q", why)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if why := r.Why(); why != "" {
		t.Errorf("at the end it says %q", why)
	}
	if why := (*Refusals)(nil).Why(); why != "" || NewRefusals(clock, &corev1.Node{}).Why() != "" {
		t.Errorf("none says %q", why)
	}
}
