/**
 * `npm run test:links [-- name …]`: gateway, agent and visitors as processes, with a link between
 * gateway and agent that is late, slow, cut or stalled. Ends with 1 when a bar is not met.
 */
import { runTrials } from '../helpers/trials.ts'
import { enterNamespace, openRig } from './open-rig.ts'
import { allTrials } from './trials.ts'

await enterNamespace()
const rig = await openRig()
process.stdout.write(`Links: ${rig.kind}.\n\n`)
const code = await runTrials('test:links', allTrials(rig), process.argv.slice(2))
await rig.stop()
process.exit(code)
