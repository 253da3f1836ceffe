import process from 'node:process'
import { createProgram } from '../../src/cli/program.ts'
import { onStopSignals } from '../../src/cli/stop-signal.ts'

/** `installed-command.ts ROOT ARGS…`: a command of this program, for the system below a folder. */
const [root = '/', ...args] = process.argv.slice(2)
const { stdout, stderr } = process
const program = createProgram({
  environment: {},
  root,
  stdout,
  stderr,
  stop: onStopSignals(process),
})
await program.parseAsync(args, { from: 'user' })
process.exit()
