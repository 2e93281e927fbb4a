package watch

import (
	"fmt"
	"strconv"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/internal/source"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/recovery"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/storm"
)

// GapCheck reports stretches of the kernel log that were lost before they could
// be read: what they said is not known. GapCode is its code.
const (
	GapCheck = "SysLogsGap"
	GapCode  = "LOG_GAP"
)

// gap reports what was lost before a line. It is no fault of a device and asks
// for nothing; the node was not watched for that long.
func (b *batch) gap(line source.Line) error {
	s := b.sighting(line)
	s.Strategy = b.m.Policy.GapStrategy
	e := s.Event(GapCheck)
	e.ErrorCode, e.RecommendedAction = []string{GapCode}, protos.RecommendedAction_NONE
	e.Message = line.Gap.Why + "; what they said is not known"
	if line.Gap.Lost > 0 {
		e.Message = fmt.Sprintf("%s (%d lines); what they said is not known", line.Gap.Why, line.Gap.Lost)
		e.Metadata[storm.MetadataLost] = strconv.FormatInt(line.Gap.Lost, 10)
	}
	if sent, err := b.report(e); err != nil || !sent {
		return err
	}
	// One that was only observed leaves nothing to be recovered from.
	if s.Strategy == record.Process {
		b.s.remember(GapCheck, recovery.Report{Code: GapCode, Strategy: s.Strategy, RebootCures: true})
	}
	return nil
}
