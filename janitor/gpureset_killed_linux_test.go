package janitor

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// resetPoints are the places at which a reset has just written or done something.
var resetPoints = []string{
	"intent-written", "claimed", "services-noted", "torn-down", "job-noted", "job-created", "job-seen", "concluded", "restored", "completed", "unclaimed",
}

// The process is killed once at each point of one reset: there is one Job, never
// under a service that is up, and the labels are as they were.
func TestAKilledJanitorResetsOnce(t *testing.T) {
	testkit.Long(t, "a janitor is killed and started again eleven times")
	binary, err := testkit.Controller(t.TempDir(), "janitor")
	if err != nil {
		t.Fatal(err)
	}
	cluster := localcluster.ForTest(t, localcluster.Options{})
	o, dir := newOperator(t, cluster), t.TempDir()
	env := []string{"NVSENTINEL_CRASH=janitor/" + strings.Join(resetPoints, ",janitor/"), "NVSENTINEL_CRASH_ONCE=" + dir}
	args := []string{"--config", o.configuration("200ms"), "--kubeconfig=" + cluster.AdminKubeconfig(), "--metrics-address=off", "--log-format=text"}
	ctx, stop := context.WithCancel(t.Context())
	k := &killer{}
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx, t, binary, env, args) })
	object := o.resets(func() bool { return killedAt(dir, resetPoints) })
	stop()
	running.Wait()
	o.audit(object)
}
