package mongodb

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// filter compiles a selector; prefix is where the record's document is, for
// example "fullDocument." in a change event. The meaning is
// record.Selector.Matches; the conformance suite compares the two.
func filter(s record.Selector, prefix string) bson.D {
	out := bson.D{}
	add := func(set bool, field string, value any) {
		if set {
			out = append(out, bson.E{Key: prefix + field, Value: value})
		}
	}
	add(s.Node != "", "healthevent.nodename", s.Node)
	add(s.Strategy != "", "healthevent.processingstrategy", string(s.Strategy))
	add(s.Healthy != nil, "healthevent.ishealthy", s.Healthy)
	add(s.Agent != "", "healthevent.agent", s.Agent)
	add(s.Session != "", "healtheventstatus.session", s.Session)
	add(s.SeqEpoch != "", "seqepoch", s.SeqEpoch)
	add(len(s.Quarantined) > 0, "healtheventstatus.nodequarantined", in(s.Quarantined))
	add(len(s.Evictions) > 0, "healtheventstatus.userpodsevictionstatus.status", in(s.Evictions))
	add(len(s.Verdicts) > 0, "verdict", in(s.Verdicts))
	add(s.Remediated != "", "healtheventstatus.faultremediated", map[string]any{"null": nil, "true": true, "false": false}[s.Remediated])
	add(s.Open != nil, "isopen", s.Open)
	var and bson.A
	if s.NotAgent != "" {
		and = append(and, bson.D{{Key: prefix + "healthevent.agent", Value: bson.D{{Key: "$ne", Value: s.NotAgent}}}})
	}
	if s.Repaired != nil {
		operator := "$eq"
		if *s.Repaired {
			operator = "$ne"
		}
		and = append(and, bson.D{{Key: prefix + "healtheventstatus.remediation", Value: bson.D{{Key: operator, Value: nil}}}})
	}
	if len(s.Any) > 0 {
		var or bson.A
		for _, one := range s.Any {
			or = append(or, filter(one, prefix))
		}
		and = append(and, bson.D{{Key: "$or", Value: or}})
	}
	if len(and) > 0 {
		out = append(out, bson.E{Key: "$and", Value: and})
	}
	return out
}

func in[T ~string](values []T) bson.D {
	var list bson.A
	for _, v := range values {
		list = append(list, string(v))
		if v == "" {
			list = append(list, nil) // what is not set is null
		}
	}
	return bson.D{{Key: "$in", Value: list}}
}

// Pipeline is the change stream of a selector: the server sends only what
// matches, and of it only what a feed reads. Every write of a record is an
// insertion or a replacement, so each event bears the record as it became.
func Pipeline(s record.Selector) mongo.Pipeline {
	operations := bson.A{"insert", "replace"}
	if s.InsertsOnly {
		operations = bson.A{"insert"}
	}
	match := bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: operations}}}}
	project := bson.D{{Key: "_id", Value: 1}}
	for _, field := range append(bson.D{{Key: "_id", Value: 1}}, projection()...) {
		project = append(project, bson.E{Key: "fullDocument." + field.Key, Value: 1})
	}
	return mongo.Pipeline{
		{{Key: "$match", Value: append(match, filter(s, "fullDocument.")...)}},
		{{Key: "$project", Value: project}},
	}
}

// BuildAllHealthEventInsertsPipeline is the exporter's change stream.
func BuildAllHealthEventInsertsPipeline() mongo.Pipeline {
	return Pipeline(record.AllHealthEventInserts())
}

// BuildProcessableHealthEventInsertsPipeline is fault-quarantine's change stream.
func BuildProcessableHealthEventInsertsPipeline() mongo.Pipeline {
	return Pipeline(record.ProcessableHealthEventInserts())
}

// BuildProcessableNonFatalUnhealthyInsertsPipeline is the analyzer's change
// stream. Despite its public name it does not test isFatal.
func BuildProcessableNonFatalUnhealthyInsertsPipeline() mongo.Pipeline {
	return Pipeline(record.ProcessableNonFatalUnhealthyInserts())
}

// BuildNodeQuarantineStatusPipeline is node-drainer's change stream.
func BuildNodeQuarantineStatusPipeline() mongo.Pipeline {
	return Pipeline(record.NodeQuarantineStatus())
}

// BuildQuarantinedAndDrainedNodesPipeline is fault-remediation's change stream.
func BuildQuarantinedAndDrainedNodesPipeline() mongo.Pipeline {
	return Pipeline(record.QuarantinedAndDrainedNodes())
}
