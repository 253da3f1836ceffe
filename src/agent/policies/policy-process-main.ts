import process from 'node:process'
import { checkPolicy } from '../../policy/check.ts'
import type { PolicyQuestion } from './policy-process.ts'

/** Checks policies for the agent that started this process, until the agent disconnects. */
process.on('message', ({ text, service }: PolicyQuestion) => {
  process.send?.(checkPolicy(text, { service }))
})
process.on('disconnect', () => process.exit())
process.send?.('ready')
