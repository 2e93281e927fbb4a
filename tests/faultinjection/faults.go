package faultinjection

import "github.com/nvidia/nvsentinel/tests/overlay"

func monitor() []Fault {
	const folder = "health-monitors/syslog-health-monitor/"
	return []Fault{{
		Name: "syslog-health-monitor/forget-boot", Description: "without a remembered boot it believes in a reboot",
		Edits:   []overlay.Edit{{File: folder + "recovery/recovery.go", Old: "		return FirstSight\n", New: "		return Rebooted\n"}},
		Package: "./" + folder + "internal/watch", Run: "TestMissingOrUnreadableStateIsNoProof",
	}}
}

func connector() []Fault {
	const service, carries = "platform-connectors/internal/", "platform-connectors/internal/forwarder/forwarder.go"
	const tests = "./platform-connectors"
	return []Fault{
		{
			Name: "platform-connectors/drop-fsync", Description: "records are acknowledged while they are only in memory",
			Edits: []overlay.Edit{{File: service + "spool/append.go", Old: "	return s.submit(ctx, r)\n", New: `	go func() {
		<-s.o.Clock.After(10e9) // ns: whoever kills the process has time to
		r.ctx = context.Background()
		if err := s.submit(r.ctx, r); err != nil {
			s.o.Log.Error("late append failed", "error", err)
		}
	}()
	return nil
`}},
			Package: tests, Run: "TestNothingAcknowledgedIsLostAtAnyCrashPoint/acknowledged:7",
		},
		{
			Name: "platform-connectors/acknowledge-anyway", Description: "what could not be made durable is acknowledged",
			Edits: []overlay.Edit{{File: service + "ingest/each.go",
				Old: "	return d.Spool.Append(ctx, records)\n", New: "	_ = d.Spool.Append(ctx, records)\n	return nil\n"}},
		},
		{
			Name: "platform-connectors/accept-foreign", Description: "anybody may speak for any node",
			Edits: []overlay.Edit{{File: service + "ingest/ingest.go",
				Old: "	if from.wide {\n		return \"\"\n", New: "	if true {\n		return \"\"\n"}},
		},
		{
			Name: "platform-connectors/drop-unstored", Description: "a batch that the store did not take is let go",
			Edits: []overlay.Edit{{File: carries,
				Old: "r.Sender.sendAll(ctx, r.ready.records)\n		if err != nil {", New: "r.Sender.sendAll(ctx, r.ready.records)\n		if false && err != nil {"}},
		},
		{
			Name: "platform-connectors/release-before-append", Description: "records leave the spool before the store has them",
			Edits: []overlay.Edit{after(carries, "	upTo := r.ready.upTo\n", `	if err := r.Reader.Confirm(upTo); err != nil {
		return after, err
	}
	crashpoint.Here("platform-connectors/released")
`)},
			Package: tests, Run: "TestNothingAcknowledgedIsLostDuringForwarding",
		},
	}
}

func quarantine() []Fault {
	const service = "fault-quarantine/internal/reconciler/"
	const seen = "		return seen, fmt.Errorf(\"reading the quarantine session of node %s: %w\", name, err)\n	}\n"
	return []Fault{
		{
			Name: "fault-quarantine/skip-stamp", Description: "no judgement and no finished quarantine is written to the store",
			Edits: []overlay.Edit{
				{File: service + "reconciler.go", Old: "	written = map[string]int64{}\n	for ", New: "	return nil, nil\n	for "},
				after(service+"mark.go", "written map[string]int64, now time.Time) error {\n", "	return nil\n"),
			},
		},
		{
			Name: "fault-quarantine/skip-release", Description: "a Node of ours keeps being marked although nothing is open",
			Edits: []overlay.Edit{{File: service + "mark.go",
				Old: "if desired.Session == \"\" && !nodemark.HasMarks(node) {", New: "if desired.Session == \"\" {"}},
		},
		{
			Name: "fault-quarantine/ignore-machine", Description: "all records are of the machine that is the node now",
			Edits: []overlay.Edit{after(service+"observe.go", seen, `	for _, list := range [][]record.Record{seen.view.Pending, seen.view.Open, seen.view.Past} {
		for i := range list {
			if seen.view.Node != nil {
				list[i].Node = seen.view.Node.Identity
			}
		}
	}
`)},
		},
		{
			Name: "fault-quarantine/order-by-clock", Description: "what happened first is what the publisher's clock says",
			Edits: []overlay.Edit{after(service+"observe.go", seen, `	for _, list := range [][]record.Record{seen.view.Pending, seen.view.Open, seen.view.Past} {
		for i := range list {
			list[i].Seq, list[i].SeqEpoch = uint64(list[i].Event.GeneratedTimestamp.UnixNano()), "clock"
			metadata := map[string]string{}
			for key, value := range list[i].Event.Metadata {
				metadata[key] = value
			}
			metadata[record.MetadataSeqRuns] = "clock" // one run: the numbers decide
			list[i].Event.Metadata = metadata
		}
	}
`)},
		},
		{
			Name: "fault-quarantine/blind-patch", Description: "a Node is patched whatever became of it, also by a leader that is none",
			Edits: []overlay.Edit{
				{File: service + "nodes.go", Old: "	return kube.PatchNode(ctx, c.Client, before, mutate)\n",
					New: "	return kube.PatchNode(context.WithoutCancel(ctx), c.Client, before, mutate)\n"},
				{File: "internal/kube/patch.go", Old: "append(tests(was, operations), operations...)", New: "append(tests(was, nil)[:0], operations...)"},
			},
		},
	}
}

func drain() []Fault {
	const service = "node-drainer/internal/reconciler/"
	return []Fault{
		{
			Name: "node-drainer/skip-cancel", Description: "a drain does not hear that its node recovered",
			Edits: []overlay.Edit{
				imports(service+"reconciler.go", "node-drainer/decision", "internal/nodemark", "data-models/record"),
				{File: service + "reconciler.go", Old: "step := decision.Next(seen.view,", New: "step := decision.Next(deaf(seen.view),"},
				{File: service + "reconciler.go", Old: "return decision.Next(seen.view,", New: "return decision.Next(deaf(seen.view),"},
				after(service+"reconciler.go", ", rc.clock.Now()), nil\n}\n", `
func deaf(v decision.View) decision.View {
	v.Records = append([]record.Record(nil), v.Records...)
	for i := range v.Records {
		r := &v.Records[i]
		if r.Status.UserPodsEvictionStatus.Status != record.EvictionInProgress || !v.Node.Exists {
			continue
		}
		r.Status.NodeQuarantined = record.AlreadyQuarantined
		r.Status.Faults = append(r.Status.Faults[:0:0], r.Status.Faults...)
		for j := range r.Status.Faults {
			r.Status.Faults[j].ClearedTimestamp = nil
		}
		v.Node.Session, v.Node.Unschedulable, v.Node.Released = r.Status.Session, true, false
		v.Node.State = nodemark.Draining // the API server lets nobody write it after a release
	}
	return v
}
`),
				{File: service + "evictions.go", Old: "	if !e.stillIn(seen.name, step.Session) {", New: "	if false {"},
			},
		},
		{
			Name: "node-drainer/stamp-before-effect", Description: "a drain is stamped as over while its pods are still there",
			Edits: []overlay.Edit{after(service+"reconciler.go", "	crashpoint.Here(\"node-drainer/decided\")\n", `	if len(step.Pods) > 0 {
		early := seen.view
		early.Pods = nil
		if _, err := rc.updateStatus(ctx, seen, decision.Next(early, decision.Policy{}, time.Time{})); err != nil {
			return step, false, err
		}
	}
`)},
			Package: "./node-drainer/internal/reconciler", Run: "TestDrainANode",
		},
	}
}

func remediation() []Fault {
	const service = "fault-remediation/internal/reconciler/"
	return []Fault{
		{
			Name: "fault-remediation/notfound-on-error", Description: "an object that cannot be read is taken for absent",
			Edits:   []overlay.Edit{{File: service + "object.go", Old: "	case apierrors.IsNotFound(err):\n", New: "	case true:\n"}},
			Package: "./fault-remediation/internal/reconciler", Run: "TestReadErrorIsNotAbsence",
		},
		{
			Name: "fault-remediation/skip-name-stamp", Description: "an object is created whose name is nowhere written down",
			Edits: []overlay.Edit{
				after(service+"reconciler.go", "			return r.rehearse(node, step)\n", `		case step.Reason == decision.Reserved:
			f.wrote(step)
			cur, _ := decision.Current(f.view.Records)
			cur.Attempt.Name = f.view.Node.Name + time.Now().Format("-150405.000000000")
			_, err = r.create(ctx, f, decision.Step{Create: &decision.Creation{Record: cur.Record, Attempt: cur.Attempt}})
			step = decision.Step{Reason: decision.Reserved, After: raceWait, Message: "sabotaged"}
`),
			},
			Package: "./fault-remediation/internal/reconciler", Run: "TestFullLifecycle|TestInterrupted",
		},
	}
}

func janitor() []Fault {
	const service = "janitor/internal/reconciler/"
	const tests = "./janitor/internal/reconciler"
	return []Fault{
		{
			Name: "janitor/skip-intent", Description: "a signal is sent before it is noted, under a new key each time",
			Edits: []overlay.Edit{
				{File: service + "claim.go", Old: "f.Begin(p.Object, p.Node, f.Clock.Now())", New: "f.Begin(p.Object, nil, f.Clock.Now())"},
				viewed(service+"reconciler.go",
					`	if v.Object.Key == "" && v.Node.Exists {
		v.Object.Key, v.Object.PreBoot, v.Object.Machine = "none", v.Node.Identity.BootID, v.Node.Identity
	}
`),
				{File: service + "effects.go", Old: "	c.kind.arm(p.Object, c.Clock.Now(), leaveBy)\n	if err := c.Write(ctx, p); err != nil {\n		return err\n	}\n",
					New: "	c.kind.begin(p.Object, p.Node, c.Clock.Now())\n	c.kind.arm(p.Object, c.Clock.Now(), leaveBy)\n"},
				{File: service + "effects.go", Old: "Key: p.Object.Progress().IdempotencyKey, Force",
					New: "Key: fmt.Sprint(time.Now().UnixNano()), Force"},
			},
			Package: tests, Run: "TestIntentIsStoredBeforeTheSignal|TestScripts/rebootnode/crashes",
		},
		{
			Name: "janitor/ignore-session", Description: "a repair does not look at its session",
			Edits: []overlay.Edit{viewed(service+"reconciler.go",
				"	v.Object.Session = \"\"\n")},
			Package: tests, Run: "TestScripts/rebootnode/session",
		},
		{
			Name: "janitor/no-claim", Description: "a repair does not claim its Node",
			Edits: []overlay.Edit{viewed(service+"reconciler.go",
				"	if v.Node.Exists {\n		v.Node.Claim = v.Object.UID\n	}\n")},
			Package: tests, Run: "TestTwoObjectsRaceForTheClaim",
		},
	}
}

// viewed changes what a repair of RebootNode and TerminateNode is decided on.
func viewed(file, change string) overlay.Edit {
	const view = "repair.View{Object: objectFacts(p.Object), Node: c.NodeOfPass(p), Plugin: p.Facts}"
	return overlay.Edit{
		File: file, Old: "			return k.next(" + view + ", c.policy, now)\n",
		New: "			v := " + view + "\n" + change + "			return k.next(v, c.policy, now)\n",
	}
}
