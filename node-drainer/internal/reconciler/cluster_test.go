package reconciler

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func versioned(name string, version int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(version)}}
}

// TestOwnNodeWriteIsVisibleBeforeTheWatchEvent: the newer one of what the
// watch reported and what we wrote is the Node; one that is gone is gone.
func TestOwnNodeWriteIsVisibleBeforeTheWatchEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		watched, wrote, watchedLater, want int
	}{
		"nothing written":            {watched: 5, want: 5},
		"the watch is behind":        {watched: 5, wrote: 7, want: 7},
		"the watch tells the write":  {watched: 5, wrote: 7, watchedLater: 7, want: 7},
		"the watch tells more":       {watched: 5, wrote: 7, watchedLater: 10, want: 10},
		"the watch was faster":       {watched: 9, wrote: 7, want: 9},
		"the Node went meanwhile":    {wrote: 7},
		"the watch tells what was":   {watched: 5, wrote: 7, watchedLater: 6, want: 7},
		"a Node that was never seen": {},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewCluster(fake.NewClientset())
			if err != nil {
				t.Fatal(err)
			}
			report := func(version int) {
				if version == 0 {
					return
				}
				if err := w.nodeInformer.GetStore().Add(versioned("n", version)); err != nil {
					t.Fatal(err)
				}
			}
			report(tt.watched)
			if tt.wrote > 0 {
				w.wrote(versioned("n", tt.wrote))
			}
			report(tt.watchedLater)
			n, err := w.Node("n")
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			if n != nil {
				got, _ = strconv.Atoi(n.ResourceVersion)
			}
			if got != tt.want {
				t.Errorf("the Node is of version %d, want %d", got, tt.want)
			}
		})
	}
}

// TestOwnWritesAreBounded: of more than that the oldest are forgotten, and the
// watch's word is taken.
func TestOwnWritesAreBounded(t *testing.T) {
	w, err := NewCluster(fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	for i := range ownWrites + 1 {
		name := fmt.Sprint("n", i)
		if err := w.nodeInformer.GetStore().Add(versioned(name, 1)); err != nil {
			t.Fatal(err)
		}
		w.wrote(versioned(name, 2))
	}
	for name, want := range map[string]string{"n0": "1", "n1": "2", fmt.Sprint("n", ownWrites): "2"} {
		if n, err := w.Node(name); err != nil || n == nil || n.ResourceVersion != want {
			t.Errorf("%s is %+v, %v; want version %s", name, n, err, want)
		}
	}
}
