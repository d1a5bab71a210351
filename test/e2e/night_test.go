// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

// night are the tests that only make test-night runs: other faults and variants of what the tests beside them show in each run, and
// recipes, whose scripts have tests without a node in recipes/.
var night = map[string]string{
	"TestTheContentOfASecretMayAskForAnotherRun": "TestARebootMayAskForAnotherRun",
	"TestTheOutputOfANodeIsInItsArchive":         "TestR22_NothingOfALongOutputIsLost",
	"TestNodeRecreatedWithTheSameName":           "TestReimagedMachineRunsTheTaskAgain",
	"TestTemplateWritesTheSameOutcome":           "TestScriptsThatMisbehave",
	"TestTwoManagersWithForcedLeaderChanges":     "TestManagerKilledWhileTasksRun",
	"TestARollbackThatFailsHoldsTheDeletion":     "TestDeletionRollsBackEveryNode",
	"TestWhatIsConvertedHasTheEffectOfItsSource": "TestAConvertedDaemonSetTakesOver",
	"TestHowLongAJoiningNodeIsClosed":            "TestR04_ATaintKeepsWorkloadsOffANodeUntilItIsDone",

	"TestR23_NoPodStartsOnAHundredJoiningNodesBeforeTheyAreDone": "TestR23_NoPodStartsOnANodeThatJoinsWhileTheManagerIsAway",

	"TestDrainsOfAllNodesOfTheManagerEnd":                "TestABudgetLetsOneNodeGoAtATime",
	"TestADrainOfAnUnreachableNodeDoesNotWaitForItsSeat": "TestABudgetLetsOneNodeGoAtATime",
	"TestZonesAndWindowsOfABudget":                       "TestABudgetLetsOneNodeGoAtATime",
	"TestANodeJobStartsOutsideOfAWindow":                 "TestABudgetLetsOneNodeGoAtATime",
	"TestANodeJobWaitsForAnotherToolOnItsNode":           "TestARevisionRunsAgainAfterAnotherOneHasRebootedTheNode",

	"TestTheChecksOfPagesAndRecipesAnswerOnAFreshNode": "TestANodeIsDrainedOnlyIfItsCheckSaysNo",

	"TestConfirmAfterTheTaskHasRestartedTheKubelet": "TestConfirmANodeThatStillResponds",
	"TestConfirmProbes":                             "TestConfirmRevertsWhatCutsANodeOff",
	"TestConfirmWithoutAManager":                    "TestConfirmRevertsWhatCutsANodeOff",
	"TestConfirmSurvivesARestartOfTheManager":       "TestConfirmRevertsWhatCutsANodeOff",
	"TestConfirmPodDeletedInTheWindow":              "TestConfirmRevertsWhatCutsANodeOff",
	"TestConfirmWithoutAnAPIServer":                 "TestConfirmRevertsWhatCutsANodeOff",

	"TestFilesEndWithARunnerThatIsKilled":                   "TestFilesAreOnTheNodeWhileTheirPodRuns",
	"TestANodeIsNotCordonedBeforeTheImageOfItsFilesIsThere": "TestANodeIsNotCordonedBeforeTheImagesOfItsTaskAreThere",

	"TestR25_WhateverDiesMeanwhile": "TestR25_TwoDrainsGoOneAfterTheOther, TestR25_ANodeThatDiesHoldsTheOthers",

	"TestRebootsOneNodeAfterTheOtherAndAFailedCheckStops": "TestANodeIsDrainedRebootedAndCheckedInItsNewBoot",
	"TestAnAttemptFailsIfTheRebootNeverEnds":              "TestANodeIsDrainedRebootedAndCheckedInItsNewBoot",
	"TestADrainThatNeverEndsFailsTheAttempt":              "TestANodeIsDrainedRebootedAndCheckedInItsNewBoot",

	"TestR18_PromotedStepByStepWithASoak":                "TestR18_OneNodeFirstThenTheOthers",
	"TestALostCanaryStopsTheRollout":                     "TestR18_OneNodeFirstThenTheOthers",
	"TestR13_TaskEndsWhileContainerdIsAway":              "TestR13_ContainerdRestartedByTask",
	"TestR20_RetriesBackOffExponentiallyAndLeaveTheNode": "TestR20_FailedNodesAreTriedAgainOrSkippedOnRequest",
	"TestR20_AFailedNodeIsCordonedUnlessSomebodyElseHas": "TestR20_FailedNodesAreTriedAgainOrSkippedOnRequest",
	"TestR22_TheSameOutputIsToldOnce":                    "TestR22_ACommandRunsOnNodesAndItsOutputComesBack",
	"TestR22_CtrlCTwiceWithRmEndsWhatRuns":               "TestR22_CtrlCTwiceDetaches",
	"TestR22_ANodeIsLostInMidRun":                        "TestR22_TheAPIServerIsAwayInMidRun",

	"TestUninstallByDeletingConfigDefault":       "TestUninstallRemovesEverythingWhileTasksRun",
	"TestUninstallAfterADeletionWithoutAManager": "TestUninstallRemovesEverythingWhileTasksRun",

	"TestRecipeKernelSettingWhereItIsHighEnough": "TestRecipeKernelSetting",
	"TestRecipeCACertificateDocker":              "TestRecipeCACertificateContainerd",
	"TestRecipeCACertificateSystem":              "TestRecipeCACertificateContainerd",
	"TestRecipeRegistryMirror":                   "TestRecipeCACertificateContainerd",
	"TestRecipeOptInLabelIsTakenOff":             "TestR12_AnOptInLabelIsRemovedWhenTheTaskIsDone",
	"TestRecipePruneNode":                        "TestRecipeDropFile",
	"TestRecipeHugePages":                        "TestRecipeKernelSetting",
	"TestRecipeNodeAudit":                        "TestANodeThatHasDriftedIsRepaired",
	"TestRecipeFirewall":                         "TestConfirmRevertsWhatCutsANodeOff",
	"TestRecipeKubeletConfiguration":             "TestRecipeRebootWhenRequired",
	"TestRecipeStorageGuard":                     "TestR27_TheUsersCheckDecidesWhenANodeMayGo",
}
