package testkit_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// fakeTB is a test that notes how it failed.
type fakeTB struct{ output string }

func (*fakeTB) Helper() {}
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.output = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestUntil(t *testing.T) {
	looks := 0
	testkit.Until(t, time.Minute, func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
	j, done := &fakeTB{}, make(chan struct{})
	go func() {
		defer close(done)
		testkit.Until(j, 10*time.Millisecond, func() bool { return false })
	}()
	<-done
	if !strings.Contains(j.output, "10ms") {
		t.Errorf("a condition that stays false says %q", j.output)
	}
}

func TestBuildersDoNotShare(t *testing.T) {
	base := testkit.Fault("a").GPU("GPU-1").Boot("b1")
	one, two := base.GPU("GPU-2").Seq("e", 7), base.GPU("GPU-3").Node("n2").Code("79")
	if got := len(base.Event().EntitiesImpacted); got != 1 {
		t.Errorf("the start has %d entities, want 1", got)
	}
	if got := one.Event().EntitiesImpacted[1].EntityValue; got != "GPU-2" {
		t.Errorf("the first has %s", got)
	}
	if _, ok := two.Event().Metadata["seq"]; ok || two.Event().BootID() != "b1" {
		t.Errorf("the second has metadata %v", two.Event().Metadata)
	}
	if seq, epoch, ok := one.Event().Seq(); seq != 7 || epoch != "e" || !ok || one.Record().Seq != 7 {
		t.Errorf("counter %d of %q, %v", seq, epoch, ok)
	}
}

func TestTheWireFormIsTheSameEvent(t *testing.T) {
	for _, b := range []testkit.Builder{
		testkit.Fault("a").Code("79").GPU("GPU-1").Seq("e", 7).Boot("b"),
		testkit.Recovery("r").PersistOnly(),
	} {
		want := b.Event()
		if got := record.FromProto(b.Proto()); record.Digest(got) != record.Digest(want) {
			t.Errorf("event (-built +wire):\n%s", cmp.Diff(want, got))
		}
	}
	if e := testkit.Recovery("r").Event(); !e.IsHealthy || e.IsFatal || e.RecommendedAction != record.ActionNone {
		t.Errorf("recovery %+v", e)
	}
}
