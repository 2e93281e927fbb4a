// Package strategy tests the specification of the processing strategy: a story test for every
// line of its two lists, the comparison of two clusters that got the same faults once as
// PROCESS and once as PERSIST_ONLY, and the table of all filters with the test that fails when
// one is taken away (make mutate-strategy).
package strategy

import "strings"

// Filter is one place that keeps PERSIST_ONLY records from acting, or that gives
// an event its strategy, and how it is taken away.
type Filter struct {
	// Layer is the service, Description describes the filter.
	Layer, Description string
	// File is relative to the repository; Old occurs in it once, and New in its
	// place is the file without the filter.
	File, Old, New string
	// Package and Run select the tests that must notice.
	Package, Run string
}

// Filters are all of them. The tool refuses a filter in the source that has no
// row here and is not excused.
func Filters() []Filter {
	var out []Filter
	for _, rows := range [][]Filter{monitors(), connector(), uncovered(), recordFilters(), selectors(), stores(), quarantine(), drain(), repair(), analyzer(), exporter(), orphanedFilters()} {
		out = append(out, rows...)
	}
	return out
}

// Excused are places that look like filters and need no row, with the reason.
func Excused() map[string]string {
	return map[string]string{
		"data-models/record/record.go: func (r Record) Acts()":                                          "the predicate itself: every row is about a use of it",
		"store-client/internal/sqlstore/queries.go":                                                     "queries whose plans a test looks at",
		"platform-connectors/internal/forwarder/sender.go: if !r.Acts() {":                              "it writes a line of the log, and that is all",
		"health-events-analyzer/config.go: Acting: report.Acting{Strategy: record.Process}":             "a default of the configuration",
		"health-monitors/internal/connector/connector.go: Connector: report.DefaultConnector(), Acting": "a default of the configuration",
		"health-monitors/kubernetes-object-monitor/config.go: Acting:":                                  "a default of the configuration",
		"cli/":                    "the command line only tells",
		"internal/testkit/":       "tests only",
		"store-client/storetest/": "tests only",
		"tests/":                  "tests only",
	}
}

func monitors() []Filter {
	const syslog, objects = "health-monitors/syslog-health-monitor/", "health-monitors/kubernetes-object-monitor/"
	const clouds, gpus, nics = "health-monitors/csp-health-monitor/", "health-monitors/gpu-health-monitor/", "health-monitors/nic-health-monitor/"
	return []Filter{
		{
			"syslog-health-monitor", "every check's event carries the flag's strategy", "health-monitors/location/sighting.go",
			"ProcessingStrategy: record.StrategyNumber(s.Strategy),", "",
			"./" + syslog + "internal/watch", "TestEveryCheckReportsWithTheStrategyAndRecoversAfterAReboot",
		},
		{
			"syslog-health-monitor", "a recovery of PROCESS faults is PROCESS, whatever the flag says by now", syslog + "recovery/memory.go",
			"	case m.Process:\n		return record.Process\n", "",
			"./" + syslog + "recovery", "Test",
		},
		{
			"syslog-health-monitor", "a recovery of observed faults is PERSIST_ONLY", syslog + "recovery/memory.go",
			"	case m.PersistOnly:\n		return record.PersistOnly\n", "",
			"./" + syslog + "recovery", "Test",
		},
		{
			"kubernetes-object-monitor", "every event carries its fault's strategy", objects + "machine/tracker.go",
			"ProcessingStrategy: record.StrategyNumber(f.Strategy),", "",
			"./" + objects + "machine", "Test",
		},
		{
			"kubernetes-object-monitor", "a policy's own strategy is read", objects + "policy/policy.go",
			"Strategy: record.Strategy(h.ProcessingStrategy),", "",
			"./" + objects + "policy", "Strategy",
		},
		{
			"kubernetes-object-monitor", "a policy's own strategy comes before the flag's", objects + "policy/policy.go",
			"	if r.Strategy != \"\" {\n		return r.Strategy\n	}\n", "",
			"./" + objects + "policy", "Strategy",
		},
		{
			"kubernetes-object-monitor", "the flag's strategy holds for policies that say none", objects + "internal/watch/evaluate.go",
			"r.StrategyOr(g.Strategy)", "r.StrategyOr(\"PROCESS\")",
			"./" + objects + "internal/watch", "Strategy",
		},
		{
			"gpu-health-monitor", "every fault carries its check's strategy", gpus + "check/decide.go",
			"	e.ProcessingStrategy = record.StrategyNumber(rule.Strategy)\n", "",
			"./" + gpus + "check", "Test",
		},
		{
			"gpu-health-monitor", "a recovery has the strategy of its fault", gpus + "check/end.go",
			"record.StrategyNumber(f.Strategy)", "record.StrategyNumber(record.PersistOnly)",
			"./" + gpus + "check", "Test",
		},
		{
			"gpu-health-monitor", "a fault that was acted on stays PROCESS, whatever the flag says by now", gpus + "check/decide.go",
			"		if old.Strategy == record.Process {", "		if old.Strategy == \"\" {",
			"./" + gpus + "check", "Test",
		},
		{
			"nic-health-monitor", "every event carries its strategy", nics + "evaluation/fabric.go",
			", ProcessingStrategy: record.StrategyNumber(r.Strategy),", ",",
			"./" + nics + "evaluation", "Test",
		},
		{
			"nic-health-monitor", "a fault that was acted on stays PROCESS, whatever the flag says by now", nics + "evaluation/evaluation.go",
			"	if open && before.Strategy == record.Process {", "	if open && before.Strategy == \"\" {",
			"./" + nics + "evaluation", "Test",
		},
		{
			"csp-health-monitor", "every event carries its strategy", clouds + "lifecycle/report.go",
			"ProcessingStrategy: s, ", "",
			"./" + clouds + "lifecycle", "TestLifecycles",
		},
		{
			"csp-health-monitor", "a provider that cannot be read is for the record only", clouds + "lifecycle/decide.go",
			"ProcessingStrategy: record.PersistOnly,", "ProcessingStrategy: record.Process,",
			"./" + clouds + "internal/reconciler", "TestAnUnreachableProvider",
		},
	}
}

func connector() []Filter {
	const folder = "platform-connectors/"
	return []Filter{
		{
			"platform-connectors", "an event makes no condition and no Event", folder + "conditions/set.go",
			"	if !r.Acts() {\n		return Unchanged\n	}\n", "",
			"./" + folder + "conditions", "PersistOnly|Fold",
		},
		{
			"platform-connectors", "a rebuilt fault set is read from PROCESS records", folder + "internal/upstream/upstream.go",
			", Strategy: record.Process}", "}",
			"./" + folder + "internal/upstream", "PROCESS",
		},
		{
			"platform-connectors", "conditions of cluster-wide agents are made of PROCESS records", folder + "internal/cluster/conditions.go",
			", Strategy: record.Process}", "}",
			"./" + folder + "internal/cluster", "PROCESS",
		},
		{
			"platform-connectors", "beyond its node's quota an observation is counted, and makes no fault a repeat", folder + "forwardpolicy/stored.go",
			"	case !r.Acts():\n		return r, Observed\n", "",
			"./platform-connectors/forwardpolicy", "TestDecide",
		},
		{
			"platform-connectors", "an observed fault that waits is no fatal fault", folder + "internal/forwarder/forwarder.go",
			"return x.Acts() && x.IsFault()", "return x.IsFault()",
			"./platform-connectors/internal/forwarder", "TestBacklogIsReported",
		},
		{
			"platform-connectors", "what its publisher observes waits for nothing and confirms nothing", folder + "pipeline/confirmation.go",
			"e.ProcessingStrategy != record.Process || e.Confirms()", "e.Confirms()",
			"./" + folder + "pipeline", "TestWaitingFaults",
		},
		{
			"platform-connectors", "a fault that waits to be confirmed is observed", folder + "pipeline/confirmation.go",
			"	e.ProcessingStrategy = record.PersistOnly\n", "",
			"./" + folder + "pipeline", "TestWaitingFaults",
		},
		{
			"platform-connectors", "a recovery that is observed ends no wait", folder + "pipeline/signals.go",
			"	if x.As.ProcessingStrategy != record.Process {\n		return nil, false\n	}\n", "",
			"./" + folder + "pipeline", "TestStories",
		},
		{
			"data-models", "only what is observed waits to be confirmed", "data-models/record/confirmation.go",
			"e.ProcessingStrategy != PersistOnly || ", "",
			"./data-models/record", "TestWaits",
		},
		{
			"platform-connectors", "a strategy that is not known becomes PERSIST_ONLY, never PROCESS", "data-models/record/event.go",
			"	if s == protos.ProcessingStrategy_PROCESS {\n		return Process", "	if s != protos.ProcessingStrategy_PERSIST_ONLY {\n		return Process",
			"./" + folder + "admission", "Test",
		},
		{
			"platform-connectors", "an observed record expires", folder + "internal/forwarder/sender.go",
			"out[i].Expire(c.Clock.Now().UTC())", "_ = out[i]",
			"./" + folder + "internal/forwarder", "TestFieldsSetByForwarder",
		},
		{
			"platform-connectors", "an observed fault makes no Event about a Node", folder + "internal/cluster/conditions.go",
			"if !r.Acts() || !r.IsFault()", "if !r.IsFault()",
			"./" + folder + "internal/cluster", "TestPendingEventsAreProcessFaults",
		},
		{
			"platform-connectors", "an observed fault is cleared by nobody", folder + "internal/cluster/clearing.go",
			"	case !r.Acts():\n		return \"the record is PERSIST_ONLY and leads to no action\"\n", "",
			"./" + folder + "internal/cluster", "TestRefused",
		},
	}
}

// uncovered is about the reports of GPU nodes without a live publisher.
func uncovered() []Filter {
	const file, tests = "platform-connectors/coverage/coverage.go", "./platform-connectors/coverage"
	return []Filter{
		{
			"coverage", "only a report that is observed, and expires, is repeated while it stands", file,
			"v.Last.Acts() || ", "",
			tests, "TestDecide",
		},
		{
			"coverage", "a report that is observed expires", file,
			"	r.Expire(now)\n", "",
			tests, "TestRecord",
		},
		{
			"coverage", "a recovery has the strategy of what it ends", file,
			"		e.ProcessingStrategy = v.Last.Event.ProcessingStrategy\n", "",
			tests, "TestRecord",
		},
	}
}

func recordFilters() []Filter {
	const file, pkg = "data-models/record/record.go", "./data-models/record"
	return []Filter{
		{"data-models", "an open record acts", file, "return r.Acts() && r.IsFault()", "return r.IsFault()", pkg, "TestRecordLifecycle"},
		{"data-models", "a record that is owed a verdict acts", file, "return r.Acts() && (!r.Evaluated()", "return (!r.Evaluated()", pkg, "TestRecordLifecycle"},
		{"data-models", "a record that acts never expires by itself", file, "	if !r.Acts() {\n		r.ExpireAt", "	if !r.IsFault() || r.IsFault() {\n		r.ExpireAt", "./platform-connectors/internal/forwarder", "TestFieldsSetByForwarder"},
		{"data-models", "an observed record is finished", file, "	case !r.Acts():\n		return true\n", "", pkg, "TestRecordLifecycle"},
		{
			"data-models", "the filter that every floor passes its records through", file,
			"	if !slices.ContainsFunc(records, func(r Record) bool { return !r.Acts() }) {\n", "	if len(records) >= 0 {\n", pkg, "TestActing",
		},
		{
			"data-models", "... and what it leaves out", file,
			"	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !r.Acts() })\n", "	return records\n", pkg, "TestActing",
		},
	}
}

func selectors() []Filter {
	const file, pkg, run = "data-models/record/selector.go", "./data-models/record", "TestEveryNamedSelectorFiltersPersistOnly"
	row := func(what, before string) Filter {
		return Filter{"store selectors", what, file, before + "Strategy: Process", before + `Strategy: ""`, pkg, run}
	}
	return []Filter{
		row("ProcessableHealthEventInserts (fault-quarantine)", `Name: "ProcessableHealthEventInserts", InsertsOnly: true, `),
		row("ProcessableNonFatalUnhealthyInserts (analyzer)", `Name: "ProcessableNonFatalUnhealthyInserts", InsertsOnly: true, `),
		row("NodeQuarantineStatus (node-drainer)", `Name: "NodeQuarantineStatus", `),
		row("QuarantinedAndDrainedNodes (fault-remediation)", `Name: "QuarantinedAndDrainedNodes", `),
		row("Backlog (fault-quarantine)", `Name: "Backlog", Node: node, `),
	}
}

func stores() []Filter {
	return []Filter{
		{
			"sqlite, postgresql", "the strategy is a condition of the query", "store-client/internal/sqlstore/selector.go",
			"	add(s.Strategy != \"\", func() string { return \"strategy = \" + c.name(string(s.Strategy)) })\n", "",
			"./store-client/sqlite", "TestConformance/list_and_feed:_selectors_mean",
		},
		{
			"mongodb", "the strategy is a condition of the change stream", "store-client/mongodb/selector.go",
			"	add(s.Strategy != \"\", \"healthevent.processingstrategy\", string(s.Strategy))\n", "",
			"./store-client/mongodb", "TestTheServerFiltersPersistOnly",
		},
		{
			"the store of a service that acts", "lists", "store-client/store/reader.go",
			"	q.Selector = ofProcess(q.Selector)\n", "", "./store-client/store", "TestActing",
		},
		{
			"the store of a service that acts", "feeds", "store-client/store/reader.go",
			"Feed(ctx, consumer, ofProcess(s))", "Feed(ctx, consumer, s)", "./store-client/store", "TestActing",
		},
		{
			"the store of a service that acts", "where a feed begins", "store-client/store/reader.go",
			"ofProcess(s), since)", "s, since)", "./store-client/store", "TestActing",
		},
		{
			"the store of a service that acts", "a selector without a strategy asks for PROCESS", "store-client/store/reader.go",
			"		s.Strategy = record.Process\n", "		return s\n", "./store-client/store", "TestActing",
		},
		{
			"the store of a service that acts", "one of another strategy gets nothing", "store-client/store/reader.go",
			", Strategy: record.Process, Any:", ", Any:", "./store-client/store", "TestActing",
		},
	}
}

// acting is a service that acts: it is given a store without what is only observed.
func acting(service string) Filter {
	return Filter{service, "its store has PROCESS records only", service + "/" + strings.ReplaceAll(service, "-", "") + ".go", "store.Acting(opened)", "opened", "./tests/strategy", "TestActingServicesReceiveProcessOnly"}
}

func quarantine() []Filter {
	const folder, evaluate, run = "fault-quarantine/", "fault-quarantine/decision/evaluate.go", "TestPersistOnlyRecordsChangeNoEvaluation"
	return []Filter{
		{"fault-quarantine", "the feed is the named one", folder + "internal/reconciler/service.go", "record.ProcessableHealthEventInserts()", "record.AllHealthEventInserts()", "./tests/strategy", "TestEveryServiceReadsItsNamedFeed"},
		acting("fault-quarantine"),
		{"fault-quarantine", "observed faults are not judged, observed recoveries lift nothing", evaluate, "record.Acting(v.Pending)", "v.Pending", "./fault-quarantine/decision", run},
		{"fault-quarantine", "observed faults keep no node", evaluate, "record.Acting(v.Open)", "v.Open", "./fault-quarantine/decision", run},
		{"fault-quarantine", "observed recoveries supersede nothing", evaluate, "record.Acting(v.Past)", "v.Past", "./fault-quarantine/decision", run},
		{"fault-quarantine", "observed recoveries are none to a record in brief", "fault-quarantine/decision/condense.go", "record.Acting(pending)", "pending", "./fault-quarantine/decision", "TestRecoveriesAct"},
		{"fault-quarantine", "the past of a node", folder + "internal/reconciler/past.go", `Name: "Past", Node: name, Strategy: record.Process, `, `Name: "Past", Node: name, `, "./fault-quarantine/internal/reconciler", "PROCESSRecordsOnly"},
	}
}

func drain() []Filter {
	const folder = "node-drainer/"
	return []Filter{
		{"node-drainer", "the feed is the named one", folder + "internal/reconciler/service.go", "record.NodeQuarantineStatus()", "record.AllHealthEventInserts()", "./tests/strategy", "TestEveryServiceReadsItsNamedFeed"},
		acting("node-drainer"),
		{"node-drainer", "the decision", folder + "decision/next.go", "	v.Records = record.Acting(v.Records)\n", "", "./node-drainer/decision", "TestPersistOnlyRecordsChangeNoStep"},
	}
}

func repair() []Filter {
	const folder = "fault-remediation/"
	return []Filter{
		{"fault-remediation", "the feed is the named one", folder + "internal/reconciler/reconciler.go", "record.QuarantinedAndDrainedNodes()", "record.AllHealthEventInserts()", "./tests/strategy", "TestEveryServiceReadsItsNamedFeed"},
		acting("fault-remediation"),
		{"fault-remediation", "the decision", folder + "decision/flight.go", "	v.Records = record.Acting(v.Records)\n", "", "./fault-remediation/decision", "TestPersistOnlyRecordsChangeNoStep"},
		{"fault-remediation", "the boots that a publisher names", folder + "internal/reconciler/observe.go", "SeqEpoch: epoch, Strategy: record.Process}", "SeqEpoch: epoch}", "./fault-remediation/internal/reconciler", "TestNoObservedBoot"},
	}
}

func analyzer() []Filter {
	const folder = "health-events-analyzer/"
	return []Filter{
		{"health-events-analyzer", "the feed is the named one", folder + "healtheventsanalyzer.go", "record.ProcessableNonFatalUnhealthyInserts()", "record.AllHealthEventInserts()", "./tests/strategy", "TestEveryServiceReadsItsNamedFeed"},
		{"health-events-analyzer", "an observed event triggers no rule", folder + "internal/matching/matching.go", "	if !r.Acts() {\n		return \"\"\n	}\n", "", "./health-events-analyzer/internal/matching", "TestPersistOnly"},
		{"health-events-analyzer", "an observed event is in no window", folder + "decision/window.go", "	if !f.Record.Acts() && !f.isDerived() {\n		return time.Time{}, false\n	}\n", "", "./health-events-analyzer/decision", "Test"},
		{"health-events-analyzer", "an observed recovery ends no fault that acts", folder + "decision/fact.go", "f.Record.Acts() && !recovery.Record.Acts() || ", "", "./health-events-analyzer/decision", "TestPersistOnlyRecoveryEndsNoProcessFault|TestPersistOnlyFaultTriggersNoEvaluation"},
		{"health-events-analyzer", "an observed event asks no rule", folder + "decision/fact.go", "f.triggers() && f.Record.Acts()", "f.triggers()", "./health-events-analyzer/decision", "TestPersistOnlyRecoveryEndsNoProcessFault|TestPersistOnlyFaultTriggersNoEvaluation"},
		{"health-events-analyzer", "an observed source is none", folder + "internal/matching/publish.go", "	case !r.Acts():\n		w.Expire(id)\n", "", "./health-events-analyzer/internal/matching", "TestPersistOnly"},
		{"health-events-analyzer", "an observed recovery is no cause", "data-models/record/selector.go", "{Strategy: Process, Healthy: Yes()}", "{Healthy: Yes()}", "./data-models/record", "TestEveryNamedSelectorFiltersPersistOnly"},
		{"health-events-analyzer", "a verdict on an observed fault is no cause", "data-models/record/selector.go", "{Strategy: Process, Verdicts:", "{Verdicts:", "./data-models/record", "TestEveryNamedSelectorFiltersPersistOnly"},
	}
}

// exporter has no filter, and must not get one: every event is exported with its strategy.
func exporter() []Filter {
	const intake, feed = "event-exporter/internal/delivery/delivery.go", "Store: ex.Records, Selector: record."
	const event, selector = "event-exporter/cloudevent/cloudevent.go", `Name: "AllHealthEventInserts", InsertsOnly: true`
	return []Filter{
		{"event-exporter", "no filter: the feed is that of all events", intake, feed + "AllHealthEventInserts()", feed + "ProcessableHealthEventInserts()", "./tests/strategy", "TestEveryServiceReadsItsNamedFeed"},
		{"event-exporter", "no filter: the feed of all events has observed ones", "data-models/record/selector.go", selector, selector + ", Strategy: Process", "./data-models/record", "TestEveryNamedSelectorFiltersPersistOnly"},
		{"event-exporter", "an exported event says its strategy", event, ", ProcessingStrategy: e.ProcessingStrategy,", ",", "./event-exporter/cloudevent", "Test"},
	}
}

func orphanedFilters() []Filter {
	const file, pkg, run = "store-client/store/orphaned.go", "./store-client/store", "TestOf"
	return []Filter{
		{"orphaned faults", "an open fault that acts", file, "range record.Acting(open) {", "range open {", pkg, run},
		{"orphaned faults", "... whose publisher says PERSIST_ONLY by now", file, "known && !waits && !now.Acts() && now", "known && !waits && now", pkg, run},
	}
}
