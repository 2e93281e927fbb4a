package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

// analyzerTarget is in events per second.
const analyzerTarget = 5000

// analyzer measures the analyzer on a durable PostgreSQL behind a short and a
// long history, and a deep one if asked for: how fast it works off events of
// many nodes, from the start of the process, and what one of them costs.
func analyzer(ctx context.Context, o Options) (rows []Row, err error) {
	server, err := startPostgreSQL(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.end()) }()
	sizes := []int{o.Sizes.Short, o.Sizes.Long}
	if o.Sizes.Deep > 0 {
		sizes = append(sizes, o.Sizes.Deep)
	}
	var short time.Duration
	for _, size := range sizes {
		dsn, err := server.CreateDatabase(ctx, fmt.Sprintf("analyzer%d", size))
		if err != nil {
			return rows, err
		}
		wall, cpu, err := analyze(ctx, o, dsn, size)
		if err != nil {
			return rows, err
		}
		rows = append(rows, Row{
			Figure: fmt.Sprintf("analyzer: events per second behind %d records", size), Measured: rate(o.Sizes.Events, wall),
			Target: Target{Over: Quantity{analyzerTarget, PerSecond, true}}, Note: "from the start of the process; 1000 nodes, no pattern among them",
		})
		each := Row{
			Figure: fmt.Sprintf("analyzer: CPU per event behind %d records", size), Measured: seconds(cpu / time.Duration(o.Sizes.Events)),
			Note: "the analyzer's own",
		}
		if size == o.Sizes.Short {
			short = cpu / time.Duration(o.Sizes.Events)
		} else {
			each.Baseline, each.Target, each.Note = seconds(short), Target{Within: flat}, "floor: behind the short history"
		}
		rows = append(rows, each)
	}
	return rows, nil
}

// analyze makes a history of events that are older than any window, lets the
// analyzer begin behind it, stores new ones while it is down, and measures how
// long it takes for them, and how much CPU.
func analyze(ctx context.Context, o Options, dsn string, size int) (wall, cpu time.Duration, err error) {
	if err := oldEvents(ctx, o, dsn, size); err != nil {
		return 0, 0, err
	}
	reader, err := storeopen.OpenReader(ctx, dsn, storeopen.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	if err := storeEvents(ctx, dsn, 1); err != nil {
		return 0, 0, err
	}
	if _, _, err := workOff(ctx, o, dsn, reader); err != nil {
		return 0, 0, fmt.Errorf("beginning: %w", err)
	}
	if err := storeEvents(ctx, dsn, o.Sizes.Events); err != nil {
		return 0, 0, err
	}
	return workOff(ctx, o, dsn, reader)
}

// oldEvents stores one event of ten days ago and lets the database copy it.
func oldEvents(ctx context.Context, o Options, dsn string, size int) (err error) {
	began := time.Now()
	s, err := storeopen.Open(ctx, dsn, storeopen.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := stored(newPen().fault("gpu-0", 0, "94", protos.RecommendedAction_CONTACT_SUPPORT), &corev1.Node{})
	r.CreatedAt = time.Now().UTC().Add(-10 * 24 * time.Hour)
	r.Event.GeneratedTimestamp = r.CreatedAt
	if _, err := s.Append(ctx, []record.Record{r}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, `UPDATE health_events SET stored_at = created_at, changed_at = created_at,
is_finished = TRUE, verdict = 'NoRuleMatched'`); err != nil {
		return err
	}
	db, err := openPostgreSQL(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close(ctx)) }()
	if err := db.clone(ctx, r.ID, size); err != nil {
		return err
	}
	o.log("%d records of history made in %s", size, time.Since(began).Round(time.Second))
	return nil
}

// workOff runs the analyzer until nothing waits for it.
func workOff(ctx context.Context, o Options, dsn string, reader store.Reader) (wall, cpu time.Duration, err error) {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, record.AnalyzerAgent), "--store="+dsn, "--metrics-address=off",
		"--socket="+filepath.Join(os.TempDir(), "no-connector.sock"))
	cmd.Stderr = &log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	err = until(ctx, o.Sizes.Limit, "the analyzer to catch up", func() (bool, error) {
		lag, err := reader.Lag(ctx, record.AnalyzerAgent, record.ProcessableNonFatalUnhealthyInserts(), 1)
		return err == nil && lag.Pending == 0 && lag.Lost == "", err
	})
	wall = time.Since(began)
	err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	if err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
