import { parentPort } from 'node:worker_threads'
import { EvaluationError } from '../expression/expression-problem.ts'
import type { RewriteAnswer, RewriteQuestion } from './body-rewriter.ts'
import { TextRewriter } from './rewrite-text.ts'

/** For all replacements of a body, in steps: about 60 ms. */
const MAX_STEPS = 1_048_576

const rewriter = new TextRewriter(MAX_STEPS)

/** Replaces in the received bodies, one after another. */
parentPort?.on('message', (question: RewriteQuestion) => {
  parentPort?.postMessage(answer(question))
})

function answer({ body, replacements }: RewriteQuestion): RewriteAnswer {
  try {
    const { text, results } = rewriter.rewrite(new TextDecoder().decode(body), replacements)
    return { body: results.length === 0 ? undefined : new TextEncoder().encode(text), results }
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error
    return { problem: error.message, isOverspent: error.isOverspent }
  }
}
