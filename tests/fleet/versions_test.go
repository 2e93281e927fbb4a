package fleet

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// earlier is the commit whose binaries run beside the present ones, or before them: the one
// before the engines of repairs became one. It is moved on when records, wire or CRDs change
// in a way that it cannot be upgraded from any more.
const earlier = "432897c3ae5346193296117ac1f46d37cbe5d1ca"

// The nodes of the test, by the phase in which the versions change.
const (
	awaitsRecovery = "gpu-0" // repaired; the monitor has not reported its recovery
	draining       = inMidDrain
	quarantined    = "gpu-2" // node-drainer has not begun
	remediating    = "gpu-3" // the maintenance object is there, the signal about to be sent
	heldNode       = "gpu-4" // its fault is Held by the emergency stop

	enriched = "gpu-5" // its record has fields that nobody knows
	sealed   = "gpu-6" // its record is for a newer version to change
	ordinary = "gpu-7"
)

var inPhases = []string{awaitsRecovery, draining, quarantined, remediating, heldNode}

// Which services run as the earlier version beside the present one, and the other way
// round: next to each in a fault's way is one of the other version.
var everySecond = []string{"fault-quarantine", "fault-remediation", "csp-plugin-kwok", Monitor}

// versions is a fleet whose services change their version.
type versions struct {
	pauseSuite
	old, current string // folders of binaries
	waves        int
}

// TestTwoVersions: services of an earlier commit and the present ones share a store and a
// cluster. Their versions change while a session is open in every phase, and each session
// goes on between services of both: from the earlier version to the present one, and back,
// as a rollback does. No node is rebooted twice, none is lost. Then the present services
// meet records of a version that does not exist yet: what they do not know survives the
// whole way, and a record that is not theirs to change waits.
func TestTwoVersions(t *testing.T) {
	testkit.Long(t, "the stores' conformance suite, cases newer, and the golden scripts named newer of fault-quarantine, node-drainer and fault-remediation")
	v := startVersions(t)
	v.inEveryPhase()
	v.change(func(service string) string { return v.either(slices.Contains(everySecond, service)) })
	v.expectContinued()
	v.change(func(string) string { return v.current })
	v.inEveryPhase()
	v.change(func(service string) string { return v.either(!slices.Contains(everySecond, service)) })
	v.expectContinued()
	v.change(func(string) string { return v.current })
	v.unknownSurvives()
	v.newerWaits()
}

func startVersions(t *testing.T) *versions {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	old, err := BuildEarlier(t.Context(), root, earlier, io.Discard)
	if errors.Is(err, ErrNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	current, err := Build(t.Context(), root, t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(t.Context(), Options{
		Nodes: len(inPhases) + 3, Store: "sqlite", Root: root, Bin: old, Progress: io.Discard, SettleTime: 2 * time.Second, RebootTime: time.Second,
		QuarantineFlags: []string{"--circuit-breaker-enabled=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Logs(quarantined, 40))
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &versions{pauseSuite: pauseSuite{t, f, map[string]int{}}, old: old, current: current}
}

func (v *versions) either(present bool) string {
	if present {
		return v.current
	}
	return v.old
}

// change has each service run from another folder from now on; what it was doing is cut
// short.
func (v *versions) change(folder func(service string) string) {
	v.Helper()
	for _, s := range v.fleet.Services() {
		service, _, _ := strings.Cut(s.Name, "@")
		s.Instead(filepath.Join(folder(service), filepath.Base(s.path)))
	}
	for _, s := range v.fleet.Services() {
		s.Kill()
	}
}

// inEveryPhase brings one node into every phase. node-drainer and the janitor stand still
// then, and the emergency stop is on.
func (v *versions) inEveryPhase() {
	v.Helper()
	f := v.fleet
	v.waves++
	v.fault(awaitsRecovery)
	v.until(func(context.Context) (bool, error) {
		n, err := f.Reboots(awaitsRecovery)
		return n == v.waves, err
	})
	f.Service(Monitor + "@" + awaitsRecovery).Freeze(true)
	v.repaired(awaitsRecovery)
	v.guard()
	v.fault(draining)
	v.latest(draining, func(s record.Status) bool { return s.UserPodsEvictionStatus.Status == record.EvictionInProgress })
	f.Service("janitor").Freeze(true)
	v.fault(remediating)
	v.until(func(ctx context.Context) (bool, error) { return v.objects(ctx, remediating) == v.waves, nil })
	v.freezeDrainer()
	v.fault(quarantined)
	v.latest(quarantined, func(s record.Status) bool { return s.QuarantineFinishTimestamp != nil })
	v.cli("brake", "on", "--reason", "two versions") // as the earlier command line has it
	v.waitForLog([]*Service{f.Service("fault-quarantine")}, "two versions")
	v.fault(heldNode)
	v.until(func(ctx context.Context) (bool, error) {
		r, err := v.newest(ctx, heldNode)
		return err == nil && r.Reason() == record.Held, err
	})
}

// expectContinued: every session ends as it would have, each with one reboot.
func (v *versions) expectContinued() {
	v.Helper()
	if err := v.fleet.Cluster.Client().PolicyV1().PodDisruptionBudgets(UserNamespace).Delete(v.Context(), guard, metav1.DeleteOptions{}); err != nil {
		v.Fatal(err)
	}
	v.cli("brake", "off")
	for _, node := range inPhases {
		v.until(func(ctx context.Context) (bool, error) {
			n, err := v.fleet.Reboots(node)
			return n >= v.waves, err
		})
		v.until(func(ctx context.Context) (bool, error) { return v.inService(ctx, node) })
		if n, err := v.fleet.Reboots(node); n != v.waves || err != nil || v.objects(v.Context(), node) != v.waves {
			v.Errorf("%s: %d reboots and %d maintenance objects after %d faults, %v", node, n, v.objects(v.Context(), node), v.waves, err)
		}
		v.expectRecords(node)
	}
}

// expectRecords: each fault of a node was stored once, opened a session of its own and was ended by
// a recovery of the machine.
func (v *versions) expectRecords(node string) {
	v.Helper()
	records, err := v.fleet.Records(v.Context(), node)
	if err != nil {
		v.Fatal(err)
	}
	sessions := map[string]bool{}
	faults := 0
	for _, r := range records {
		if !r.IsFault() {
			continue
		}
		faults++
		sessions[r.Status.Session] = true
		if r.Reason() != record.Matched || !r.Status.AllCleared() || r.Status.Remediation == nil || r.Status.Remediation.Outcome != record.OutcomeSucceeded {
			v.Errorf("%s: record %s is %+v", node, r.ID, r.Status)
		}
		for _, f := range r.Status.Faults {
			if f.ClearedBy == record.ClearedManual || f.ClearedBy == record.ClearedNodeGone || f.ClearedBy == record.ClearedNodeReleased {
				v.Errorf("%s: record %s was ended by %s", node, r.ID, f.ClearedBy)
			}
		}
	}
	if faults != v.waves || len(sessions) != v.waves {
		v.Errorf("%s has %d faults in %d sessions, want %d", node, faults, len(sessions), v.waves)
	}
}

// newest is the newest fault of a node.
func (v *versions) newest(ctx context.Context, node string) (record.Record, error) {
	records, err := v.fleet.Records(ctx, node)
	if err != nil {
		return record.Record{}, err
	}
	records = slices.DeleteFunc(records, func(r record.Record) bool { return !r.IsFault() })
	if len(records) == 0 {
		return record.Record{}, errors.New("no fault is stored")
	}
	return slices.MaxFunc(records, func(a, b record.Record) int { return int(a.Append - b.Append) }), nil
}

// latest waits until a node's newest fault, that of this wave, is so.
func (v *versions) latest(node string, is func(record.Status) bool) {
	v.Helper()
	v.until(func(ctx context.Context) (bool, error) {
		r, err := v.newest(ctx, node)
		return err == nil && !r.Status.AllCleared() && is(r.Status), err
	})
}

// repaired waits until the repair of a node's newest fault has succeeded.
func (v *versions) repaired(node string) {
	v.Helper()
	v.latest(node, func(s record.Status) bool { return s.FaultRemediated != nil && *s.FaultRemediated })
}

// edit changes the stored document of a record, as a newer version would.
func (v *versions) edit(id string, change func(doc []byte) []byte) (doc []byte) {
	v.Helper()
	tx, unlock := v.lock()
	defer unlock() // does nothing after the commit
	if err := tx.QueryRowContext(v.Context(), "SELECT doc FROM health_events WHERE id = $1", id).Scan(&doc); err != nil {
		v.Fatal(err)
	}
	if change == nil {
		return doc
	}
	if _, err := tx.ExecContext(v.Context(), "UPDATE health_events SET doc = $1 WHERE id = $2", string(change(doc)), id); err != nil {
		v.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		v.Fatal(err)
	}
	return doc
}

// lock keeps all services from writing to the store until unlock.
func (v *versions) lock() (tx *sql.Tx, unlock func()) {
	v.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(v.fleet.DSN, "sqlite://")+"?_pragma=busy_timeout(60000)&_txlock=immediate")
	if err != nil {
		v.Fatal(err)
	}
	if tx, err = db.BeginTx(v.Context(), nil); err != nil {
		v.Fatal(errors.Join(err, db.Close()))
	}
	return tx, func() {
		_ = tx.Rollback()
		_ = db.Close()
	}
}

// freezeDrainer stops node-drainer outside of a transaction, within which it would keep all
// others from writing.
func (v *versions) freezeDrainer() {
	v.Helper()
	_, unlock := v.lock()
	defer unlock()
	v.fleet.Service("node-drainer").Freeze(true)
}

// stopped brings a node's fault to the point at which its drain is to begin, and stops
// node-drainer there.
func (v *versions) stopped(node string) record.Record {
	v.Helper()
	v.freezeDrainer()
	v.fault(node)
	v.latest(node, func(s record.Status) bool { return s.QuarantineFinishTimestamp != nil })
	r, err := v.newest(v.Context(), node)
	if err != nil {
		v.Fatal(err)
	}
	return r
}

// unknownSurvives: what no service knows of a record is there after drain, repair and
// recovery.
func (v *versions) unknownSurvives() {
	v.Helper()
	r := v.stopped(enriched)
	var before []string
	v.edit(r.ID, func(doc []byte) []byte {
		doc = storetest.Newer(v, doc)
		before = storetest.NewerAt(v, doc)
		return doc
	})
	v.fleet.Service("node-drainer").Freeze(false)
	v.until(func(ctx context.Context) (bool, error) { return v.inService(ctx, enriched) })
	after := storetest.NewerAt(v, v.edit(r.ID, nil))
	for _, at := range before {
		if !slices.Contains(after, at) {
			v.Errorf("what a newer version wrote at %q is gone", at)
		}
	}
	if ended, err := v.newest(v.Context(), enriched); err != nil || ended.ID != r.ID || ended.Revision-r.Revision < 4 {
		v.Errorf("the record was changed %d times, %v", ended.Revision-r.Revision, err)
	}
}

// newerWaits: a record that only a newer version may change is left alone, and this is reported;
// the fault of another node is handled; and the record is processed once that is permitted.
func (v *versions) newerWaits() {
	v.Helper()
	r := v.stopped(sealed)
	before := v.edit(r.ID, func(doc []byte) []byte {
		return []byte(strings.Replace(string(doc), `{"id":`, `{"minversion":2,"id":`, 1))
	})
	v.kill(v.replicas(acting...)...)
	v.until(func(ctx context.Context) (bool, error) {
		list, err := v.fleet.Cluster.Client().CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + sealed})
		if err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Reason == "NewerVersionRequired" {
				return true, nil
			}
		}
		return false, nil
	})
	v.fault(ordinary)
	v.until(func(ctx context.Context) (bool, error) {
		n, err := v.fleet.Reboots(ordinary)
		return n == 1, err
	})
	if after := v.edit(r.ID, nil); string(after) != strings.Replace(string(before), `{"id":`, `{"minversion":2,"id":`, 1) {
		v.Errorf("the record was %s, and is %s", before, after)
	}
	if n, err := v.fleet.Reboots(sealed); n != 0 || err != nil {
		v.Errorf("%s: %d reboots, %v", sealed, n, err)
	}
	v.edit(r.ID, func([]byte) []byte { return before })
	v.kill(v.replicas(acting...)...)
	v.until(func(ctx context.Context) (bool, error) { return v.inService(ctx, sealed) })
	if n, err := v.fleet.Reboots(sealed); n != 1 || err != nil {
		v.Errorf("%s: %d reboots, %v", sealed, n, err)
	}
}
