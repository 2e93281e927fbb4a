package postgresql

import (
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/sqlstore"
)

// Pipeline is what a feed asks the server for: the rows of health_events for
// which Where holds. It is to PostgreSQL what a change stream's $match is to
// MongoDB.
type Pipeline struct {
	// Where is a condition on the columns of health_events; $1 and so on are Args.
	Where string
	Args  []any
	// InsertsOnly: rows come in the order of their insertions, each once.
	// Otherwise in the order of their last changes, again after each.
	InsertsOnly bool
}

// PipelineOf is the pipeline of a selector.
func PipelineOf(s record.Selector) Pipeline {
	where, args := sqlstore.Condition(s)
	return Pipeline{Where: where, Args: args, InsertsOnly: s.InsertsOnly}
}

// BuildAllHealthEventInsertsPipeline is what the exporter follows.
func BuildAllHealthEventInsertsPipeline() Pipeline {
	return PipelineOf(record.AllHealthEventInserts())
}

// BuildProcessableHealthEventInsertsPipeline is what fault-quarantine follows.
func BuildProcessableHealthEventInsertsPipeline() Pipeline {
	return PipelineOf(record.ProcessableHealthEventInserts())
}

// BuildProcessableNonFatalUnhealthyInsertsPipeline is what the analyzer
// follows. Despite its public name it does not test isFatal.
func BuildProcessableNonFatalUnhealthyInsertsPipeline() Pipeline {
	return PipelineOf(record.ProcessableNonFatalUnhealthyInserts())
}

// BuildNodeQuarantineStatusPipeline is what node-drainer follows.
func BuildNodeQuarantineStatusPipeline() Pipeline {
	return PipelineOf(record.NodeQuarantineStatus())
}

// BuildQuarantinedAndDrainedNodesPipeline is what fault-remediation follows.
func BuildQuarantinedAndDrainedNodesPipeline() Pipeline {
	return PipelineOf(record.QuarantinedAndDrainedNodes())
}
