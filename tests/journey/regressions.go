package journey

import "time"

// RegressionPlans are trips of soaks that broke an invariant once, as they were planned: a
// seed's plan changes with the lists that it is dealt from. A soak begins with
// them.
func RegressionPlans() []Plan {
	return []Plan{
		// A drainer a day ahead called a drain over 40 ms after its last eviction,
		// and the simulated kubelet of the Node that came back never ended the pod.
		{
			Seed: 770005, Variant: Variant{"postgresql", 1}, Scenario: Returned,
			Kills: []string{"fault-remediation/created:1", "fault-remediation/name-stamped:1", "janitor/armed:1", "janitor/claimed:1", "node-drainer/done:1"},
			Disturbances: []Disturbance{
				{Kind: DatabaseAway, After: 73 * time.Millisecond, For: 7876 * time.Millisecond},
				{Kind: ClockJump, After: 1394 * time.Millisecond, For: 78625 * time.Millisecond, By: 24 * time.Hour, Of: "node-drainer"},
			},
		},
		// The Node's Lease ran out while the API server was away, and its guard was
		// evicted within the session, since it was not Ready any more, in spite of a
		// budget of one pod; once the node was rebooted, since nothing held the drain.
		{
			Seed: 770020, Variant: Variant{"postgresql", 2}, Scenario: OutboxLost,
			Kills: []string{"platform-connectors/received:1", "node-drainer/observed:2", "platform-connectors/folded:1"},
			Disturbances: []Disturbance{
				{Kind: APIAway, After: 1146 * time.Millisecond, For: 91683 * time.Millisecond},
				{Kind: Malformed, After: 747 * time.Millisecond, For: 11111 * time.Millisecond},
			},
		},
		// A quarantine service that started again on a store that had been put back
		// held the fault of a quarantined node, because that node had used the budget.
		{Seed: 900002, Variant: Variant{"sqlite", 1}, Scenario: Restored},
		// The store was put back within a second of the release, when the node's check did not
		// report it healthy yet: the fault remained, and its recovery was lost.
		{
			Seed: 1053, Variant: Variant{"sqlite", 1}, Scenario: RestoredLate,
			Kills: []string{"fault-remediation/name-stamped:1", "janitor/armed:1", "janitor/claimed:1", "janitor/done:1", "platform-connectors/spooled:2"},
			Disturbances: []Disturbance{
				{Kind: APIAway, After: 954 * time.Millisecond, For: 6562 * time.Millisecond},
				{Kind: StaleWatch, After: 1416 * time.Millisecond, For: 9456 * time.Millisecond, By: 1524 * time.Millisecond},
			},
		},
		// A connector, which had stood still, reported a fault again to an emptied store. A
		// person had ended that fault meanwhile, and the node was rebooted.
		{
			Seed: 900003, Variant: Variant{"postgresql", 1}, Scenario: Emptied,
			Disturbances: []Disturbance{{Kind: StaleWatch, After: 500 * time.Millisecond, For: 5 * time.Second, By: 2 * time.Second}},
		},
	}
}
