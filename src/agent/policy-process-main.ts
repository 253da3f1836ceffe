import process from 'node:process'
import { checkPolicy } from '../policy/check.ts'
import type { PolicyAnswer, PolicyQuestion } from './policy-process.ts'

/** Checks policies for the agent that started this process, until the agent lets go of it. */
process.on('message', ({ id, text, service }: PolicyQuestion) => {
  const answer: PolicyAnswer = { id, problems: checkPolicy(text, { service }) }
  process.send?.(answer)
})
process.on('disconnect', () => process.exit())
