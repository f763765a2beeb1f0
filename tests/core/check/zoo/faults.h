/* One animal a fault: FAULT is defined as one of these names, and each `if (FAULT == ...)` below plants it. What each must
 * fail: ../animals.txt. */
#ifndef FAULTS_H
#define FAULTS_H
enum fault {
  none, no_manifest, not_toml, no_id, data_entry, exports_more, exports_unique, relative_rpath, no_summary,
  executable_stack, undefined_symbol, null_table, major_2, short_table, start_without_stop, other_id, other_version,
  no_interface, short_interface, null_slot, any_interface, moving_table, fp_mode, signal_handler, locale, umask_changed,
  environment, resource_limit, closes_stdin, prints, fails_silently, starts_once, leaks_descriptor, leaks_thread,
  leaks_heap, keeps_host_memory, crashes_at_exit, slow_start, null_crashes, match_null_crashes, null_error_crashes,
  no_message, undocumented_code, foreign_internal, degenerate_internal, ignores_sink, exact_sizes, ignores_option,
  no_match, score_2000, slow_match, moody_match, shared_state, leaks_by_call, leaks_descriptor_by_call, no_profile,
  takes_nothing, late_parent, endless, unknown_component, inexact, wraps, wrong_peak, moody_digest, too_sure, nameless,
  dirty_note, falls_with_batch, falls_with_sequence, falls_with_layers, calls_after_stop, logs_null, late_sink,
  foreign_thread, writes_input, error_past_size, keeps_error, unterminated, summary_past_size, many_threads,
  unknown_words, lora_is_arg, any_device, create_leaves, no_order, any_tensor, any_token, refusal_changes, knows_all,
  save_ignores_sink, any_scope, probe_fails, other_trainer, fails_second_step, loss_is_sum, counts_all, climbs,
  evaluation_trains, saves_half, own_names, same_seed, load_forgets, plans_more, plan_allocates, destroy_leaks,
  behind_the_back, grows, counters_fall, ignores_cancel,
  half_the_weights, sgd_takes_more, bf16_takes_more, says_exact, adds_up, whole_tensors_only, fills_nothing, moody_bits,
  save_counts, counts_own_steps, nan_is_fine, nan_applies, counts_without_bytes, ignored_as_zero, no_embedding_gradient,
  double_norm, mean_of_means, cancel_keeps_half, polls_once, budget_leaks, shared_steps, one_at_a_time, save_foreign_thread,
  start_needs_memory, key_destructor, oom_is_internal, middle_alloc_leaks, oom_poisons, leaks_by_life,
  leaks_descriptor_by_life, aborts_on_shape, moody_shape, copies_by_size, odd_sequence_fails, counts_cancels, grows_late,
  leaks_by_step, leaks_seldom, inits_again, match_reads
};
#ifndef FAULT
#define FAULT none
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#endif
