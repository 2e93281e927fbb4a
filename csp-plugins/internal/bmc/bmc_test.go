package bmc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// text is how Linux shows a system UUID; the others are the same bytes in the
// orders in which firmware reports them.
const (
	text    = "00112233-4455-6677-8899-aabbccddeeff"
	smbios  = "33221100-5544-7766-8899-aabbccddeeff"
	ipmi    = "ffeeddccbbaa99887766554433221100"
	ipmiOf  = "ffeeddcc-bbaa-9988-7766-554433221100"
	factory = "03000200-0400-0500-0006-000700080009"
)

func TestSameUUID(t *testing.T) {
	for _, tt := range []struct {
		name, one, other string
		want             bool
	}{
		{"equal", text, text, true},
		{"in capitals", text, strings.ToUpper(text), true},
		{"first fields turned", text, smbios, true},
		{"as IPMI sends it", text, ipmi, true},
		{"with hyphens", text, ipmiOf, true},
		{"as IPMI sends what is turned", smbios, ipmi, true},
		{"one bit", text, "00112233-4455-6677-8899-aabbccddeefe", false},
		{"the last fields turned", text, "00112233-4455-6677-8899-ffeeddccbbaa", false},
		{"none", "", "", false},
		{"no UUIDs", "none", "none", false},
		{"with braces", text, "{" + text + "}", false},
	} {
		if got := sameUUID(tt.one, tt.other); got != tt.want || sameUUID(tt.other, tt.one) != tt.want {
			t.Errorf("%s: %v, want %v, both ways", tt.name, got, tt.want)
		}
	}
}

func FuzzSameUUID(f *testing.F) {
	f.Add(text, smbios)
	f.Add(ipmi, "")
	f.Fuzz(func(t *testing.T, one, other string) {
		if sameUUID(one, other) != sameUUID(other, one) {
			t.Errorf("%q and %q: not both ways", one, other)
		}
		if _, ok := parseUUID(one); ok && !sameUUID(one, one) {
			t.Errorf("%q is not itself", one)
		}
		if strings.Trim(one, " ") == "" && sameUUID(one, other) {
			t.Errorf("nothing is %q", other)
		}
	})
}

// driver answers as a test configures it.
type driver struct {
	mu     sync.Mutex
	facts  Facts
	errs   map[string]error
	resets int
	// now and most are the looks that go on at the same time.
	now, most int
	meet      chan struct{} // nil, or each look takes one
}

func (d *driver) Inspect(ctx context.Context, machine string) (Facts, error) {
	d.mu.Lock()
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	if d.meet != nil {
		select {
		case <-d.meet:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now--
	return d.facts, d.errs[machine]
}

func (d *driver) Reset(context.Context, string, bool) error {
	d.resets++
	return nil
}

func node(name, providerID, uuid string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: uuid}},
	}
}

// No machine is reset that is not certainly the node's.
func TestExamine(t *testing.T) {
	entries := []Entry{{Node: "gpu-1"}, {Node: "gpu-2", SkipUUIDCheck: true}}
	for _, tt := range []struct {
		name, node, shown string
		facts             Facts
		want              codes.Code
		words             string
	}{
		{"the same", "gpu-1", text, Facts{UUID: text, Power: On}, codes.OK, ""},
		{"the same in another order", "gpu-1", text, Facts{UUID: ipmi, Power: On}, codes.OK, ""},
		{"another machine", "gpu-1", text, Facts{UUID: "a0112233-4455-6677-8899-aabbccddeeff", Power: On}, codes.FailedPrecondition, "another machine"},
		{"the node shows none", "gpu-1", "", Facts{UUID: text, Power: On}, codes.FailedPrecondition, "cannot be verified as"},
		{"the BMC shows none", "gpu-1", text, Facts{Power: On}, codes.FailedPrecondition, "cannot be verified as"},
		{"the BMC shows none while the machine starts", "gpu-1", text, Facts{Power: Changing}, codes.Aborted, "retrying until the machine is on"},
		{"both show the maker's", "gpu-1", factory, Facts{UUID: factory, Power: On}, codes.FailedPrecondition, "cannot be verified as"},
		{"both show zeros", "gpu-1", "00000000-0000-0000-0000-000000000000", Facts{UUID: "00000000-0000-0000-0000-000000000000", Power: On}, codes.FailedPrecondition, "cannot be verified as"},
		{"without the check", "gpu-2", text, Facts{UUID: factory, Power: On}, codes.OK, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.LastReset = "then"
			p := New(entries, &driver{facts: tt.facts})
			n := node(tt.node, "", tt.shown)
			machine, err := p.Machine(n)
			if err != nil {
				t.Fatal(err)
			}
			mark, err := p.Examine(t.Context(), machine, n)
			if status.Code(err) != tt.want || !strings.Contains(fmt.Sprint(err), tt.words) || (err == nil) != (mark == "then") {
				t.Errorf("%q, %v; want %s: %s", mark, err, tt.want, tt.words)
			}
		})
	}
}

func TestMachine(t *testing.T) {
	p := New([]Entry{{Node: "gpu-1"}, {Node: "gpu-3", SkipUUIDCheck: true}}, &driver{})
	for _, tt := range []struct {
		name, id, want string
	}{
		{"gpu-1", "", "node://gpu-1"}, {"gpu-1", "aws:///a/i-0", "node://gpu-1"}, {"gpu-1", "node://gpu-3", "node://gpu-1"},
		{"gpu-9", "", ""}, {"gpu-9", "node://gpu-1", ""},
	} {
		got, err := p.Machine(node(tt.name, tt.id, text))
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && status.Code(err) != codes.FailedPrecondition {
			t.Errorf("node %s, %q: %q, %v; want %q", tt.name, tt.id, got, err, tt.want)
		}
	}
	if !p.Rivals(node("gpu-1", "", text), node("evil", "", smbios)) || p.Rivals(node("gpu-1", "", factory), node("gpu-2", "", factory)) {
		t.Error("two nodes are rivals that show one system UUID of their own, and only they")
	}
	if p.Rivals(node("gpu-3", "", text), node("gpu-1", "", text)) {
		t.Error("without the check the UUIDs do not matter")
	}
	if _, err := p.State(t.Context(), "node://gone"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the state of a machine that the configuration lacks: %v, want FailedPrecondition", err)
	}
}

// What a Node shows is confirmed by the BMC that the configuration gives it, and by nothing
// else.
func TestConfirmed(t *testing.T) {
	d := &driver{facts: Facts{UUID: text, Power: On}, errs: map[string]error{"node://silent": errors.New("it burns")}}
	p := New([]Entry{{Node: "gpu-1"}, {Node: "silent"}, {Node: "unchecked", SkipUUIDCheck: true}}, d)
	for _, tt := range []struct {
		name, shown string
		want        bool
	}{
		{"gpu-1", smbios, true}, {"gpu-1", "a0112233-4455-6677-8899-aabbccddeeff", false}, {"gpu-1", "", false},
		{"silent", text, false}, {"unchecked", text, false}, {"unknown", text, false},
	} {
		if got := p.Confirmed(t.Context(), node(tt.name, "node://gpu-1", tt.shown)); got != tt.want {
			t.Errorf("node %s that shows %q: %v, want %v", tt.name, tt.shown, got, tt.want)
		}
	}
}

// A kubelet writes its Node's providerID: no entry can rest on it.
func TestEntriesNameTheirNode(t *testing.T) {
	for want, e := range map[string]Entry{
		"":                             {Node: "gpu-1"},
		"is not a verification":        {Node: "gpu-1", ProviderID: "metal://1"},
		"Node name of the machine":     {ProviderID: "metal://1"},
		"must be the Node name of the": {Node: "gpu\n1", SkipUUIDCheck: true},
	} {
		e.Credentials, e.Reset = "/c", []string{"reset"}
		err := ValidateEntries([]Entry{e}, []string{"reset"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
}

func TestState(t *testing.T) {
	d := &driver{}
	p := New([]Entry{{Node: "gpu-1"}}, d)
	for power, want := range map[Power]cloud.State{On: cloud.Up, Off: cloud.NotUp, Changing: cloud.NotUp} {
		d.facts.Power = power
		if got, err := p.State(t.Context(), "node://gpu-1"); err != nil || got != want {
			t.Errorf("power %q: %s, %v; want %s", power, got, err, want)
		}
	}
	d.facts.Power = Unknown
	if _, err := p.State(t.Context(), "node://gpu-1"); status.Code(err) != codes.Unimplemented {
		t.Errorf("a BMC that does not say: %v, want Unimplemented", err)
	}
}

// One BMC hears one call at a time, and who waits in vain has done nothing.
func TestCallsWaitForEachOther(t *testing.T) {
	d := &driver{meet: make(chan struct{}), facts: Facts{Power: On}}
	p := New([]Entry{{Node: "gpu-1"}}, d)
	looked := make(chan error)
	go func() { _, err := p.State(context.WithoutCancel(t.Context()), "node://gpu-1"); looked <- err }()
	d.meet <- struct{}{}
	if err := <-looked; err != nil {
		t.Fatal(err)
	}
	p.turns["node://gpu-1"] <- struct{}{} // somebody speaks to it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Reboot(ctx, "node://gpu-1", false); status.Code(err) != codes.Aborted || d.resets != 0 {
		t.Errorf("a reset that waited: %v and %d resets, want Aborted and none", err, d.resets)
	}
}

// A thousand BMCs are asked so many at a time; the process is ready as long as
// one answers, and names those that do not.
func TestCheck(t *testing.T) {
	const size, atOnce = 1000, 8
	d := &driver{errs: map[string]error{}, meet: make(chan struct{})}
	var entries []Entry
	for i := range size {
		entries = append(entries, Entry{Node: fmt.Sprintf("gpu-%03d", i)})
	}
	c := DefaultConfig()
	c.ChecksAtOnce = atOnce
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	k := NewCheck(New(entries, d), c, slog.New(slog.NewTextHandler(&log, nil)), clocktesting.NewFakeClock(metav1.Now().Time), registry)
	if ok, detail := k.Ready(); ok || !strings.Contains(detail, "no BMC has responded yet") {
		t.Errorf("before the first check: %v, %s", ok, detail)
	}
	sweep := func() {
		t.Helper()
		over := make(chan struct{})
		go func() { defer close(over); k.Sweep(t.Context()) }()
		for {
			select {
			case d.meet <- struct{}{}:
			case <-over:
				return
			}
		}
	}
	sweep()
	if ok, detail := k.Ready(); !ok || detail != "" || d.most > atOnce || d.most < 1 {
		t.Errorf("all answer: %v, %q, %d at once", ok, detail, d.most)
	}
	d.errs["node://gpu-007"] = errors.New("it burns")
	sweep()
	sweep()
	ok, detail := k.Ready()
	if !ok || detail != "1 of 1000 BMCs are down: node://gpu-007: it burns" {
		t.Errorf("one does not: %v, %q", ok, detail)
	}
	if got := strings.Count(log.String(), "it burns"); got != 1 {
		t.Errorf("it was logged %d times, want once:\n%s", got, &log)
	}
	if down, up := testutil.ToFloat64(k.up.WithLabelValues("node://gpu-007")), testutil.ToFloat64(k.up.WithLabelValues("node://gpu-008")); down != 0 || up != 1 {
		t.Errorf("metrics %v and %v, want 0 and 1", down, up)
	}
	for _, e := range entries {
		d.errs[e.Machine()] = errors.New("all burn")
	}
	sweep()
	if ok, detail := k.Ready(); ok || strings.Count(detail, "burn") != named {
		t.Errorf("none answers: %v, %q", ok, detail)
	}
	clear(d.errs)
	sweep()
	if ok, _ := k.Ready(); !ok || !strings.Contains(log.String(), "check recovered") {
		t.Error("all answer again: not ready")
	}
}

func TestEntriesAreBounded(t *testing.T) {
	entries := make([]Entry, MaxEntries)
	for i := range entries {
		entries[i] = Entry{Node: fmt.Sprintf("gpu-%d", i), Credentials: "/c", Reset: []string{"reset"}}
	}
	if err := ValidateEntries(entries, []string{"reset"}); err != nil {
		t.Errorf("%d: %v", len(entries), err)
	}
	if err := ValidateEntries(append(entries, Entry{Node: "more"}), []string{"reset"}); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Errorf("one more: %v", err)
	}
}

func TestReadCredentials(t *testing.T) {
	for _, tt := range []struct {
		name, user, password string
		want                 bool
	}{
		{"plain", "operator", "se cret", true}, {"with a line's end", "operator\n", "secret\r\n", true},
		{"empty", "operator", "\n", false}, {"two lines", "operator", "a\nb", false}, {"long", "operator", strings.Repeat("x", maxCredential+1), false},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"username": tt.user, "password": tt.password} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ReadCredentials(dir)
		if (err == nil) != tt.want || err == nil && got.Password != strings.TrimRight(tt.password, "\r\n") {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: the error tells the password: %v", tt.name, err)
		}
	}
	if _, err := ReadCredentials(t.TempDir()); err == nil {
		t.Error("an empty folder: no error")
	}
}
