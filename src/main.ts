#!/usr/bin/env node
import process from 'node:process'
import type { Command } from 'commander'
import { InheritedSockets } from './base/listen-address.ts'
import { leadsToJournal } from './base/logger.ts'
import type { CommandContext } from './cli/command-context.ts'
import { openPrivateStdout } from './cli/private-stdout.ts'
import { exitCodeOf, failureLine, reasonOf } from './cli/program-failure.ts'
import { Predecessor } from './cli/reload/predecessor.ts'
import { isService, serviceProgram } from './cli/service-program.ts'
import { readSettingsFile, withPlaces } from './cli/settings-place.ts'
import { onStopSignals } from './cli/stop-signal.ts'
import { withJoined } from './cli/surroundings.ts'
import { SECRET_SETTINGS } from './settings/settings.ts'

const args = process.argv.slice(2)
const servesOn = isService(args)

/** Removes secrets from `process.env`, so that child processes and crash dumps do not contain them. */
function readEnvironment(): Record<string, string | undefined> {
  const environment = { ...readSettingsFile('.env'), ...process.env }
  for (const name of SECRET_SETTINGS) delete process.env[name]
  return withJoined(environment)
}

/** The program with all commands, which services need not load. */
async function everyCommand(context: CommandContext): Promise<Command> {
  const { createProgram } = await import('./cli/program.ts')
  return createProgram(context)
}

/** Resolves when the output is written, or its reader has gone. A write to a pipe takes time, and an exit ends it. */
function written(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.once('error', () => resolve())
    stream.write('', () => resolve())
  })
}

/** Exit code of a command whose output nobody reads, as a shell reports for SIGPIPE: 128 + 13. */
const BROKEN_PIPE_EXIT = 141
if (!servesOn) {
  process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    if (code === 'EPIPE') process.exit(BROKEN_PIPE_EXIT)
  })
}

const predecessor = Predecessor.meet(process)
let environment: CommandContext['environment'] = {}
try {
  environment = readEnvironment()
  // After a handover, LISTEN_PID is the id of the previous process, which could not know the id of this one.
  const sockets = InheritedSockets.fromEnvironment(process.env, predecessor?.pid ?? process.pid)
  const context: CommandContext = {
    environment,
    // With --json, services print one line, which must not be mixed with other output.
    stdout: servesOn && args.includes('--json') ? openPrivateStdout() : process.stdout,
    stderr: process.stderr,
    sockets,
    predecessor,
    onReload: (listener) => process.on('SIGHUP', listener),
    stop: onStopSignals(process),
  }
  const program = serviceProgram(context, args) ?? (await everyCommand(context))
  await program.parseAsync()
} catch (reason) {
  const error = withPlaces(reason, environment)
  const isJournal = leadsToJournal(process.env.JOURNAL_STREAM, process.stderr.fd)
  process.exitCode = exitCodeOf(error, process.stderr, { isJournal })
  const line = failureLine(error, args)
  if (line !== undefined) process.stdout.write(line)
  await predecessor?.failed(reasonOf(error))
}
// A service ends also when nothing reads its output.
if (!servesOn) await written(process.stdout)
// Otherwise the native threads of the SDK would decide when the process ends.
process.exit()
