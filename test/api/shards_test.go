// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/everynode/everynode/test/shards"
)

var shardsAtOnce = shards.Flag("API server")

// permissionsVariable names the file to which a shard writes the permissions that its managers have used.
const permissionsVariable = "EVERYNODE_TEST_PERMISSIONS"

// slow are the tests that take half a minute or more, and their seconds on two processors with four shards. To measure them:
// make test-api TESTFLAGS=-v.
var slow = map[string]int{
	"TestTheCommandsInThePagesWork":                          456,
	"TestNoScriptRunsWhileKubectlDeletesEachObject":          240,
	"TestNoScriptRunsWhileHelmInstallsOrUninstallsEverynode": 109,
	"TestNoScriptRunsWhileTheCommandUninstallsEverynode":     41,
	"TestUninstall":                                           175,
	"TestUninstallInterruptedAtEachWrite":                     104,
	"TestTheManagerSurvivesLargeObjects":                      197,
	"TestNoFaultOfAWriteChangesWhatARolloutComesTo":           182,
	"TestABudgetBindsOtherTools":                              150,
	"TestNoScriptRunsThatWasWrittenWithoutPolicies":           148,
	"TestAManagerThatDiesAtAnyWriteOfARelease":                126,
	"TestADrainAmongAThousandNodes":                           114,
	"TestTheChartIsInstalledUpgradedRolledBackAndUninstalled": 106,
	"TestWhoMayAccessWhat":                                    101,
	"TestRequiresWithPrometheus":                              95,
	"TestABudgetDecidesBeforeANodeGuard":                      70,
	"TestNVSentinelRepairsNodes":                              68,
	"TestCanIWhateverIsInstalled":                             67,
	"TestAValueOfTheNodeThatChangesRunsTheTaskAgain":          66,
	"TestABudgetGrantsOneEvictionAtATime":                     66,
	"TestABudgetWaitsForItsRequirements":                      59,
	"TestRequirementsReadNothingThatIsNotGranted":             50,
	"TestThePoliciesAskForTheRightsThatTheCommandLineNames":   44,
	"TestTheGateOnAFreshAPIServer":                            43,
	"TestNodesThatAreDoneAreAskedAgain":                       41,
	"TestWhoMayLimitDisruptions":                              38,
	"TestASeatIsASeatInEveryField":                            36,
	"TestNodeJobsDrawOnABudget":                               36,
	"TestUninstallKeepsTheManagersRightsUntilItsLastWrite":    35,
	"TestOnlyAGrantedAbsenceBeginsAPace":                      33,
	"TestASeatToleratesTheTaintsThatItsNodeGets":              31,
}

// night are the tests that take long for what they add to others: those play the same with fewer objects or faults, or on fakeapi.
var night = map[string]string{
	"TestNoFaultOfAWriteChangesWhatARolloutComesTo":          "TestWritesThatFailAreRetried, TestACrashBetweenAnyTwoWritesLosesAndRepeatsNothing",
	"TestAManagerThatDiesAtAnyWriteOfARelease":               "TestNodesAreReleasedOneAfterTheOther",
	"TestUninstallInterruptedAtEachWrite":                    "TestUninstall",
	"TestNoScriptRunsWhileKubectlDeletesEachObject":          "TestNoScriptRunsWhileTheCommandUninstallsEverynode",
	"TestNoScriptRunsWhileHelmInstallsOrUninstallsEverynode": "TestNoScriptRunsWhileTheCommandUninstallsEverynode",
	"TestTheManagerSurvivesLargeObjects":                     "TestANodeWithFullAnnotationsHoldsOnlyItself",
	"TestADrainAmongAThousandNodes":                          "TestADecisionAmongManyNodeGuards",
	"TestRequiresWithPrometheus":                             "TestRequirementsOfAnAlertmanager, TestABudgetWaitsForItsRequirements",
	"TestNVSentinelRepairsNodes":                             "TestANodeJobPublishesACondition",
}

// runShards fails as a single process with all of the tests would.
func runShards(n int) int {
	dir, err := os.MkdirTemp("", "everynode-shards-")
	if err != nil {
		fmt.Println("making a folder for the shards:", err)
		return 1
	}
	code := shards.Run(n, shards.Suite{
		Env: func(shard int) []string {
			return []string{permissionsVariable + "=" + filepath.Join(dir, fmt.Sprint(shard))}
		},
		Slow: slow, Night: night,
	})
	if code != 0 {
		return code
	}
	if err := collectPermissions(dir); err != nil {
		fmt.Println("collecting the permissions that the shards have used:", err)
		return 1
	}
	return checkUsed()
}

// policiesServedMark is among the permissions of a shard whose API server serves the policies of the gate.
const policiesServedMark = "the policies of the gate are served"

// collectPermissions makes used those of all shards.
func collectPermissions(dir string) (err error) {
	if used.role, err = managerRole(); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return err
		}
		used.seen = used.seen.Union(sets.New(strings.Split(string(content), "\n")...))
	}
	policiesServed = used.seen.Has(policiesServedMark)
	return err
}

// leavePermissions writes what the managers of this shard have used.
func leavePermissions(path string) error {
	used.mu.Lock()
	defer used.mu.Unlock()
	if policiesServed {
		used.seen.Insert(policiesServedMark)
	}
	return os.WriteFile(path, []byte(strings.Join(sets.List(used.seen), "\n")), 0o600)
}

// checkUsed returns 1 if the role of the manager has a permission that no test has used. Where tests are skipped for the
// API server's version, so are the uses of permissions.
func checkUsed() int {
	if flag.Lookup("test.run").Value.String() != "" || !policiesServed {
		return 0
	}
	if unused := used.notUsed(); len(unused) > 0 {
		fmt.Println("config/rbac/role.yaml allows what no test has the manager do:", unused)
		return 1
	}
	return 0
}
