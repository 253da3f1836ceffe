/** Prefix of tokens that the agent makes. */
export const TOKEN_PREFIX = 'dagt_'
/** How long a secret from before a rotation may count. */
export const MAX_OVERLAP_S = 30 * 86_400
/** 256 bits in base64url behind it. */
export const TOKEN_FORM = /^dagt_[\w-]{43}$/
